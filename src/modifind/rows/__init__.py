"""Rows that count differently or belong together: weights, clusters, strata, what these make of folds and scores."""
