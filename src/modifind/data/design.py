"""How the treatment was given: what the user declared, what follows from the arguments, or what was assumed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal

from modifind.data.containers import estimator_of, is_known

DESIGNS = ("randomised", "observational")


@dataclass(frozen=True)
class Design:
    """How the treatment of a table was given.

    Attributes
    ----------
    randomised : bool
        Whether by chance alone.
    said : bool
        Whether the user said so, by a design, a known propensity or strata; otherwise it is assumed.
    chance : {"known", "strata", "observed", "fitted"}
        Where the chance of a row to be treated comes from: it is known, the share of treated rows in its stratum or
        among all rows, or fitted to the features.

    Examples
    --------
    >>> Design.of("randomised", "auto", strata=False)
    Design(randomised=True, said=True, chance='observed')
    >>> Design.of(None, 0.5, strata=False).randomised, Design.of(None, "auto", strata=False).randomised
    (True, False)
    """

    randomised: bool
    said: bool
    chance: Literal["known", "strata", "observed", "fitted"]

    @classmethod
    def of(cls, design: str | None, propensity: Any, *, strata: bool, by_row: bool = False) -> Design:
        """From the settings `design` and `propensity`, and whether there are strata, or one known score per row."""
        estimator = estimator_of(propensity)
        by_share, known = isinstance(estimator, str) and estimator == "auto", by_row or is_known(propensity)
        randomised = design != "observational" and (design is not None or strata or known)
        said = design is not None or randomised
        if known:
            return cls(randomised, said, "known")
        if strata and by_share:
            return cls(randomised, said, "strata")
        return cls(randomised, said, "observed" if randomised and by_share else "fitted")


def check_design(design: Any, propensity: Any, *, strata: bool, by_row: bool = False) -> None:
    """Refuse an unknown design, and one that contradicts other arguments.

    Parameters
    ----------
    design : object
        What the user passed.
    propensity : object
        A setting, a `PropensityModel`, or shares by label.
    strata, by_row : bool
        Whether strata were passed, and one known score per row.

    Raises
    ------
    ValueError
        Names both arguments and the remedy.

    Examples
    --------
    >>> check_design("observational", 0.5, strata=False)
    Traceback (most recent call last):
    ...
    ValueError: design='observational' and propensity=0.5 contradict each other: ...
    """
    if design is not None and design not in DESIGNS:
        raise ValueError(f"design must be 'randomised' or 'observational', not {design!r}")
    estimator = estimator_of(propensity)
    if design == "observational" and isinstance(estimator, Real | Mapping):
        shown = f"propensity={float(estimator):g}" if isinstance(estimator, Real) else "propensity={label: share}"
        raise ValueError(
            f"design='observational' and {shown} contradict each other: a treatment with one known probability for all "
            "rows was randomised. Say design='randomised', or leave the propensity out and it is estimated"
        )
    if design == "observational" and strata:
        raise ValueError(
            "design='observational' and strata contradict each other: strata are those that a treatment was randomised "
            "in. Say design='randomised', or make the column a feature"
        )
    if design == "randomised" and not (strata or by_row or is_known(propensity)) and estimator != "auto":
        raise ValueError(
            "design='randomised' and a propensity that is fitted to the features contradict each other: leave the "
            "propensity out and the observed share is used, or pass the known share"
        )
