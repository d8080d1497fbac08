"""Constants of explanations that reports state."""

from __future__ import annotations

N_DRAWS = 200
# Points with fewer effective rows than this in an arm are not drawn as fact.
MIN_SUPPORT = 20.0
