"""Nuisance models: propensity scores, outcome models, conditional distributions of features."""
