"""Whom effects are about: all rows, or those who could have been in either arm.

Where an arm has hardly any rows of some kind, an average over all rows rests on those few, or on a model. In the
*overlap population* a row counts with ``e (1 - e)``, e being its chance to be treated: most where either arm was as
likely as the other, and hardly where one arm was all but certain. No inverse of a small chance remains: a treated row
counts with ``1 - e`` and a control row with e (Li, Morgan and Zaslavsky 2018). In a trial with one chance for all, both
populations are the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from modifind._typing import Array
from modifind.data.weights import Weights

POPULATIONS = ("all", "overlap")


SHORT_NAMES = {"all": "all rows", "overlap": "overlap population"}


def check_population(population: Any) -> None:
    """Refuse an unknown population."""
    if population not in POPULATIONS:
        raise ValueError(f"population must be 'all' or 'overlap', not {population!r}")


def row_weights(scores: Array, population: str) -> Array:
    """How much a row counts, by its chance to be treated, in units that make a row with even chances count 1.

    Examples
    --------
    >>> row_weights(np.array([0.5, 0.1]), "overlap")
    array([1.  , 0.36])
    """
    return 4.0 * scores * (1.0 - scores) if population == "overlap" else np.ones(scores.shape)


def population_weights(scores: Array, population: str, weights: Weights) -> Weights:
    """Weights of the rows, times how much they count in a population."""
    return weights if population == "all" else Weights.of(weights.times(row_weights(scores, population)))
