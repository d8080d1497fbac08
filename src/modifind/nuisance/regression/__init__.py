"""Regressions that models of every kind are made of: smooth terms, spreads, penalties, and tests of what is left."""
