"""The treatment: which label means treated, which arms are compared, and the design."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal

import numpy as np
import pandas as pd

from modifind._typing import Bools
from modifind.data.column_types import plain_column, plain_label
from modifind.data.containers import estimator_of, is_known
from modifind.data.features import MIN_ARM_ROWS
from modifind.data.words import counted, listed, respelled

MAX_ARMS = 12  # a number with more values is a dose

# docs/quickstart.md lists these for users.
CONTROL_WORDS = frozenset(
    (
        *("control", "controls", "control arm", "control group", "placebo", "sham", "vehicle", "none", "no", "off"),
        *("untreated", "not treated", "no treatment", "no intervention", "nothing"),
        *("usual care", "care as usual", "treatment as usual", "standard care", "standard of care"),
    )
)
# Control and treated, where the control would say nothing beside another label.
PAIRS = frozenset((("0", "1"), ("n", "y"), ("f", "t"), ("c", "t")))
NEGATIONS = ("no ", "not ", "non-", "non ", "non", "un", "without ", "never ")


def first_treated(labels: Sequence[Any], treated: Any, name: str = "treatment") -> bool:
    """Whether the first of two labels, in natural order, is the treated one.

    Parameters
    ----------
    labels : sequence of two
        The labels.
    treated : object or None
        The label that the user named. Case and blanks do not matter, and 1, "1", 1.0 and True are the same.
    name : str, default="treatment"
        What messages call the column.

    Raises
    ------
    ValueError
        There are not two labels, none of them is `treated`, or nothing says which is.

    Examples
    --------
    >>> first_treated(("drug", "Placebo "), None), first_treated(("exposed", "unexposed"), None)
    (True, True)
    >>> first_treated(("new", "old"), "NEW")
    True
    >>> first_treated(("new", "old"), None)
    Traceback (most recent call last):
    ...
    ValueError: treatment has the labels 'new' and 'old', and nothing says which of them means treated; name it with \
treated=
    """
    refuse_other_than_two(labels, name)
    if treated is not None:
        return match_label(labels, treated, "treated", name) == labels[0]
    refuse_alike(labels, name)
    words = [plain(label) for label in labels]
    if (words[0], words[1]) in PAIRS:
        return False
    if (words[1], words[0]) in PAIRS:
        return True
    controls = [_is_control(*words), _is_control(*words[::-1])]
    if controls[0] == controls[1]:
        raise ValueError(
            f"{name} has the labels {labels[0]!r} and {labels[1]!r}, and nothing says which of them means treated; "
            "name it with treated="
        )
    return controls[1]


def refuse_other_than_two(labels: Sequence[Any], name: str) -> None:
    """Refuse a number of labels other than two, with advice for more.

    Examples
    --------
    >>> refuse_other_than_two(["a", "b", "c"], "treatment")
    Traceback (most recent call last):
    ...
    ValueError: treatment has 3 labels: 'a', 'b', 'c'; name the one that each of the others is compared with \
(reference=), or two of them (arms=)
    """
    if len(labels) == 2:
        return
    if len(labels) < 2:
        raise ValueError(f"{name} must have at least two values; found {len(labels)}: {listed(labels)}")
    refuse_doses(labels, len(labels), name)
    refuse_alike(labels, name)
    raise ValueError(
        f"{name} has {len(labels)} labels: {listed(labels, most=8)}; name the one that each of the others is compared "
        "with (reference=), or two of them (arms=)"
    )


def refuse_doses(labels: Sequence[Any], n_labels: int, name: str) -> None:
    """Refuse a treatment with many numeric values; `labels` are some of them."""
    if n_labels > MAX_ARMS and all(isinstance(label, int | float) for label in labels):
        raise ValueError(
            f"{name} has more than {MAX_ARMS} distinct numbers, like a dose, and doses are not supported; divide it "
            "into a few arms, such as none, low and high, and name the one that the others are compared with "
            "(reference=)"
        )


def refuse_alike(labels: Sequence[Any], name: str) -> None:
    """Refuse labels that differ only in case, whitespace or letter forms."""
    if len({plain(label) for label in labels}) < len(labels):
        raise ValueError(
            f"{name} has {len(labels)} labels: {listed(labels, most=8)}. Some differ only in capitals, "
            "blanks or the form of letters; write these alike"
        )


def match_label(labels: Sequence[Any], wanted: Any, argument: str, name: str) -> Any:
    """The label that the user named; exact matches take precedence over those ignoring case."""
    for form in (str, plain):
        matches = [label for label in labels if form(label) == form(wanted)]
        if len(matches) == 1:
            return matches[0]
    raise ValueError(f"{argument}={wanted!r} is not a value of {name}: {listed(labels, most=8)}")


def _is_control(word: str, other: str) -> bool:
    """Whether a label means control, given the other one."""
    return word in CONTROL_WORDS or any(word == negation + other for negation in NEGATIONS)


def plain(label: Any) -> str:
    """Normalise a label: ignore case, whitespace and letter forms; 1, 1.0 and True become equal.

    Examples
    --------
    >>> [plain(label) for label in (1, "1", 1.0, "1.0", True, "true", " Usual  care")]
    ['1', '1', '1', '1', '1', '1', 'usual care']
    """
    text = respelled(label)
    if text in ("false", "true"):
        return str(int(text == "true"))
    try:
        number = float(text)
    except ValueError:
        return text
    return str(int(number)) if number.is_integer() else str(number)


@dataclass(frozen=True)
class Comparison:
    """The arms of a treatment to compare.

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
        """Arguments of a two-arm fit that compares one label with the reference."""
        only_two = len(self.counts) == 2
        return {"treated": label, "reference": None, "arms": None if only_two else (self.reference, label)}

    def share(self, label: Any, shares: Mapping[Any, Any], name: str = "treatment") -> float:
        """Share of one arm among its rows and those of the reference, from the shares of all arms.

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
            raise ValueError(f"the shares in propensity add up to {total:.6g}; they must add up to 1")
        if lacking := [arm for arm in (self.reference, *self.others) if arm not in known]:
            raise ValueError(f"propensity has no share for {listed(lacking)}; give one for every arm of {name}")
        return float(known[label]) / (float(known[label]) + float(known[self.reference]))


def compare_arms(
    counts: Mapping[Any, int],
    *,
    treated: Any = None,
    reference: Any = None,
    arms: Sequence[Any] | None = None,
    name: str = "treatment",
) -> Comparison:
    """Resolve which arms are compared from what the user named.

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
            f"each arm of {name} needs at least {MIN_ARM_ROWS} rows; too few are in {named}. Leave out their rows, or "
            "name two other arms (arms=)"
        )
    return Comparison(control, tuple(label for label in labels if label != control), counts)


def _two_labels(labels: list[Any], arms: Sequence[Any], name: str) -> list[Any]:
    """The labels named by `arms`, in the order of all labels."""
    if isinstance(arms, str) or not isinstance(arms, Iterable) or len(tuple(arms)) != 2:
        raise ValueError(f"arms must be two labels of {name}, such as {tuple(labels[:2])!r}; found {arms!r}")
    chosen = [match_label(labels, label, "arms", name) for label in arms]
    if chosen[0] == chosen[1]:
        raise ValueError(f"arms names {chosen[0]!r} twice; name two labels of {name}: {listed(labels, most=8)}")
    return [label for label in labels if label in chosen]


def label_counts(columns: Iterable[pd.Series[Any]]) -> dict[Any, int]:
    """Rows by treatment label over all pieces, in natural order, ignoring missing values.

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
    """Mask of rows in some arms; rows with a missing treatment are kept, to be handled as missing values.

    Examples
    --------
    >>> in_arms(pd.Series(["low", "high", None]), ("LOW", "placebo"))
    array([ True, False,  True])
    """
    codes, labels = pd.factorize(plain_column(column))
    wanted = {plain(label) for label in arms}
    kept = np.array([plain(plain_label(label)) in wanted for label in labels] + [True], dtype=bool)
    return kept[codes]


DESIGNS = ("randomised", "observational")


@dataclass(frozen=True)
class Design:
    """How the treatment was assigned.

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
        """Resolve the design from the settings `design` and `propensity`, strata, and known scores per row."""
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
    """Refuse an unknown design or one that contradicts other arguments.

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
            "design='observational' and strata contradict each other: strata are the groups within which a treatment "
            "was randomised. Say design='randomised', or make the column a feature"
        )
    if design == "randomised" and not (strata or by_row or is_known(propensity)) and estimator != "auto":
        raise ValueError(
            "design='randomised' and a propensity that is fitted to the features contradict each other: leave the "
            "propensity out and the observed share is used, or pass the known share"
        )
