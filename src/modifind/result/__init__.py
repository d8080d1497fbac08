"""What a run found: frozen, checked, written to files and read back."""
