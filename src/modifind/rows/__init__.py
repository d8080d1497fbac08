"""Rows that count differently or belong together: weights, groups, strata, and what these make of folds and scores."""
