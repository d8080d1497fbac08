"""Results of fits: frozen, checked, written to files and read back."""
