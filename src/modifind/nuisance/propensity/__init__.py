"""Propensity scores: models of who was treated."""
