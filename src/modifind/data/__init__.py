"""Tables as users have them, read, recognised, and refused or warned of where they would mislead."""
