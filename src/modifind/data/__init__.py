"""Input tables: read, typed, and refused or warned about where they would mislead."""
