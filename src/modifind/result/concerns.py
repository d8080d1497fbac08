"""What is said of checks: cautions of features, concerns in a line each, and a summary."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from modifind._warned import warn
from modifind.data.wording import counted, printable, shortened
from modifind.result.check_kinds import KINDS

MAX_NAMES = 12


def cautions(checks: pd.DataFrame, features: Sequence[str]) -> list[str]:
    """Failed checks of each feature in a few words; empty where all passed."""
    phrases: dict[str, list[str]] = {str(feature): [] for feature in features}
    failed = checks[~checks["passed"] & checks["feature"].isin(list(phrases))]  # others are columns adjusted for
    for name, feature in zip(failed["name"], failed["feature"], strict=True):
        phrases[feature].append(KINDS[name].caution)
    return ["; ".join(dict.fromkeys(phrases[str(feature)])) for feature in features]


def concerns(checks: pd.DataFrame, named: frozenset[str] = frozenset(), *, validity: bool | None = None) -> list[str]:
    """One sentence or a few for every kind of check that failed, naming the features; what bears on validity first.

    Features in `named` are left out where they cannot be tested: they have had a warning of their own. With `validity`
    only cautions (True) or only notes (False) are returned.

    Examples
    --------
    >>> from modifind.result.check_kinds import Check
    >>> from modifind.result.checks import as_frame
    >>> found = [Check("constant", name, 1.0, 1.0, False, "") for name in ("site", "batch")]
    >>> concerns(as_frame(found))
    ['constant columns cannot modify anything: site, batch']
    >>> concerns(as_frame(found), validity=True)
    []
    """
    untestable = checks["name"].isin(["constant", "rare", "determined"]) & checks["feature"].isin(list(named))
    failed = checks[~checks["passed"] & ~untestable]
    wanted = (True, False) if validity is None else (validity,)
    return [
        printable(_concern(str(name), rows))
        for bears in wanted
        for name, rows in failed[failed["validity"] == bears].groupby("name", sort=False)
    ]


def summary(checks: pd.DataFrame) -> str:
    """How many kinds of check bear on validity, how many of them failed, and how many notes there are.

    Examples
    --------
    >>> from modifind.result.check_kinds import Check
    >>> from modifind.result.checks import as_frame
    >>> found = [Check("conditional_fit", "age", 0.1, 0.05, False, ""), Check("constant", "site", 1.0, 0.0, False, "")]
    >>> summary(as_frame(found))
    '1 of 1 check needs attention; 1 note'
    >>> summary(as_frame([Check("common_support", None, 0.1, 0.2, True, "")]))
    'The check passed'
    """
    bearing = checks[checks["validity"]]
    failed = bearing.loc[~bearing["passed"], "name"].nunique()
    notes = checks.loc[~checks["passed"] & ~checks["validity"], "name"].nunique()
    total = bearing["name"].nunique()
    passed = f"All {total} checks passed" if total > 1 else "The check passed"
    shown = f"{failed} of {counted(total, 'check')} need{'s' if failed == 1 else ''} attention" if failed else passed
    return shown + (f"; {counted(notes, 'note')}" if notes else "")


def warn_of(checks: pd.DataFrame, named: frozenset[str] = frozenset()) -> None:
    """One warning for every kind of check that failed; see `concerns`."""
    for message in concerns(checks, named):
        warn(message)


def _concern(name: str, rows: pd.DataFrame) -> str:
    kind, remedy = KINDS[name], str(rows["remedy"].iloc[0])
    if rows["feature"].isna().all() or not kind.about_several:
        texts = list(rows["text"])
        more = f"And {len(texts) - MAX_NAMES} more." if len(texts) > MAX_NAMES else ""
        return " ".join(filter(None, [*texts[:MAX_NAMES], more, remedy]))
    names = [str(feature) for feature in rows["feature"]]
    count, listed = counted(len(names), "feature"), shortened(names, MAX_NAMES)
    return f"{kind.about_several.format(count=count, features=listed)} {remedy}".rstrip()
