"""Propensity scores: models of treatment assignment."""
