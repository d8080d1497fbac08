"""Which arms of a treatment are compared: each of several with a reference, or two of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd

from modifind._typing import Bools
from modifind.data.arm_labels import (
    first_treated,
    match_label,
    plain,
    refuse_alike,
    refuse_doses,
    refuse_other_than_two,
)
from modifind.data.column_types import plain_column, plain_label
from modifind.data.feature_matrix import MIN_ARM_ROWS
from modifind.data.wording import counted, listed


@dataclass(frozen=True)
class Comparison:
    """Arms of a treatment that are compared.

    Attributes
    ----------
    reference : object
        Label of the arm that the others are compared with.
    others : tuple
        Labels of the other arms.
    counts : mapping
        Rows of every label of the treatment, those of arms that are left out among them.
    """

    reference: Any
    others: tuple[Any, ...]
    counts: Mapping[Any, int]

    def pair(self, label: Any) -> dict[str, Any]:
        """One of the others with the reference: arguments of a fit of two arms."""
        only_two = len(self.counts) == 2
        return {"treated": label, "reference": None, "arms": None if only_two else (self.reference, label)}

    def share(self, label: Any, shares: Mapping[Any, Any], name: str = "treatment") -> float:
        """Share of one of the others among its rows and those of the reference, from the shares of all arms.

        Examples
        --------
        >>> arms = Comparison("none", ("low", "high"), {"none": 50, "low": 25, "high": 25})
        >>> arms.share("low", {"none": 0.5, "low": 0.25, "high": 0.25})
        0.3333333333333333
        """
        known = {match_label(list(self.counts), arm, "propensity", name): share for arm, share in shares.items()}
        wrong = [arm for arm, share in known.items() if not isinstance(share, Real) or not 0 < float(share) < 1]
        if wrong:
            raise ValueError(f"propensity must give shares between 0 and 1; not so for {listed(wrong)}")
        if not math.isclose(total := sum(map(float, known.values())), 1.0, abs_tol=1e-6):
            raise ValueError(f"the shares that propensity gives add up to {total:.6g}; those of all arms add up to 1")
        if lacking := [arm for arm in (self.reference, *self.others) if arm not in known]:
            raise ValueError(f"propensity gives no share of {listed(lacking)}; name every arm of {name}")
        return float(known[label]) / (float(known[label]) + float(known[self.reference]))


def compare_arms(
    counts: Mapping[Any, int],
    *,
    treated: Any = None,
    reference: Any = None,
    arms: Sequence[Any] | None = None,
    name: str = "treatment",
) -> Comparison:
    """Which arms are compared, by what the user named.

    Parameters
    ----------
    counts : mapping
        Rows of every label.
    treated, reference : object, optional
        The label that means treated, of two arms; the one that all others are compared with.
    arms : sequence of two, optional
        The labels that are compared; rows of others are left out.
    name : str, default="treatment"
        What messages call the column.

    Raises
    ------
    ValueError
        Names the label or the argument, and what to do.

    Examples
    --------
    >>> rows = {"high": 40, "low": 40, "placebo": 60}
    >>> compare_arms(rows, reference="placebo").others
    ('high', 'low')
    >>> compare_arms(rows, arms=("high", "placebo")).reference
    'placebo'
    """
    labels = list(counts)
    refuse_doses(labels, len(labels), name)
    refuse_alike(labels, name)
    if arms is not None:
        labels = _two_labels(labels, arms, name)
    among = name if arms is None else "the arms that are compared"
    control = None if reference is None else match_label(labels, reference, "reference", among)
    if len(labels) == 2:
        if reference is None:
            control = labels[1] if first_treated(labels, treated, name) else labels[0]
        elif treated is not None and match_label(labels, treated, "treated", name) == control:
            raise ValueError(f"treated and reference are both {control!r}; name different arms, or only one of the two")
    elif treated is not None:
        raise ValueError(
            f"treated={treated!r} is for two arms, and {name} has {len(labels)} labels: {listed(labels, most=8)}; name "
            "the one that the others are compared with (reference=), or two of them (arms=)"
        )
    elif reference is None:
        refuse_other_than_two(labels, name)
    few = {label: counts[label] for label in labels if counts[label] < MIN_ARM_ROWS}
    if few and len(labels) > 2:
        named = ", ".join(f"{label!r} ({counted(count, 'row')})" for label, count in few.items())
        raise ValueError(
            f"each arm of {name} needs at least {MIN_ARM_ROWS} rows; too few have {named}. Leave out their rows, or "
            "name two other arms (arms=)"
        )
    return Comparison(control, tuple(label for label in labels if label != control), counts)


def _two_labels(labels: list[Any], arms: Sequence[Any], name: str) -> list[Any]:
    """The labels that `arms` names, in the order of all."""
    if isinstance(arms, str) or not isinstance(arms, Iterable) or len(tuple(arms)) != 2:
        raise ValueError(f"arms must be two labels of {name}, such as {tuple(labels[:2])!r}; found {arms!r}")
    chosen = [match_label(labels, label, "arms", name) for label in arms]
    if chosen[0] == chosen[1]:
        raise ValueError(f"arms names {chosen[0]!r} twice; name two labels of {name}: {listed(labels, most=8)}")
    return [label for label in labels if label in chosen]


def label_counts(columns: Iterable[pd.Series[Any]]) -> dict[Any, int]:
    """Rows of every label of a treatment that comes in pieces, in the natural order; missing ones do not count.

    Examples
    --------
    >>> label_counts([pd.Series(["b", None, "a"]), pd.Series(["b"])])
    {'a': 1, 'b': 2}
    """
    totals: dict[Any, int] = {}
    for column in columns:
        counts = plain_column(column).value_counts(sort=False)
        for label, count in counts[counts > 0].items():
            totals[plain_label(label)] = totals.get(plain_label(label), 0) + int(count)
    try:
        return dict(sorted(totals.items()))
    except TypeError:  # labels of several types
        return dict(sorted(totals.items(), key=lambda item: str(item[0])))


def in_arms(column: pd.Series[Any], arms: Sequence[Any]) -> Bools:
    """Which rows are in some arms; rows of no arm stay, to be refused or left out as missing values are.

    Examples
    --------
    >>> in_arms(pd.Series(["low", "high", None]), ("LOW", "placebo"))
    array([ True, False,  True])
    """
    codes, labels = pd.factorize(plain_column(column))
    wanted = {plain(label) for label in arms}
    kept = np.array([plain(plain_label(label)) in wanted for label in labels] + [True], dtype=bool)
    return kept[codes]
