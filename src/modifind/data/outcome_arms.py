"""What each arm holds of the outcome: whether it is the treatment, constant in an arm, or rarely anything else."""

from __future__ import annotations

from typing import Any

import numpy as np

from modifind._typing import Array, Ints

MIN_EVENTS = 10  # rows of an arm that differ from its most frequent outcome


def refuse_treatment_as_outcome(y: Array, arms: Ints, outcome: str = "the outcome y") -> None:
    """Refuse an outcome that the treatment determines: it has one value in each arm.

    Examples
    --------
    >>> arms = np.arange(60) % 2
    >>> refuse_treatment_as_outcome(3.0 - arms, arms)
    Traceback (most recent call last):
    ...
    ValueError: the outcome y has one value in each arm (3 in control rows and 2 in treated rows): it is the treatment \
under another name; name a column measured after the treatment
    """
    control, treated = y[arms == 0], y[arms == 1]
    if control[0] != treated[0] and not (np.ptp(control) or np.ptp(treated)):
        raise ValueError(
            f"{outcome} has one value in each arm ({control[0]:g} in control rows and {treated[0]:g} in treated rows): "
            "it is the treatment under another name; name a column measured after the treatment"
        )


def few_events(y: Array, arms: Ints) -> dict[str, dict[str, Any]]:
    """Arms in which hardly any row differs from the most frequent outcome, as a result records them.

    Of each its rows, those that differ, the most frequent outcome, and whether the outcome has two values in all. Of a
    longer table only the rows are counted that models are fitted to.

    Examples
    --------
    >>> few_events(np.repeat([0.0, 1.0], [57, 3]), np.arange(60) % 2)["treated"]
    {'rows': 30, 'events': 2, 'usual': 0.0, 'binary': True}
    """
    binary, counted = np.unique(y).size == 2, {}
    for arm, name in enumerate(("control", "treated")):
        values, rows = np.unique(y[arms == arm], return_counts=True)
        events = int(rows.sum() - rows.max())
        if events < MIN_EVENTS:
            usual = float(values[rows.argmax()])
            counted[name] = {"rows": int(rows.sum()), "events": events, "usual": usual, "binary": binary}
    return counted
