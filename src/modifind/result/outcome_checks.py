"""Checks of the outcome: whether columns give it, and whether both arms have enough of it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from modifind.data.outcome_arms import MIN_EVENTS
from modifind.data.outcome_parts import MIN_SHARE
from modifind.data.wording import counted
from modifind.result.check_kinds import Check

MAX_GAIN = 2.3  # nats per row that an outcome which is a number leaves to be learned: 99% of its variance
MAX_GAIN_SHARE = 0.85  # of what there is to be learned of an outcome of levels
LEVELS = ("binary", "ordinal")


def outcome_checks(settings: Mapping[str, Any]) -> Iterator[Check]:
    """Failed checks of whether columns give the outcome together and whether both arms have enough events."""
    if parts := settings.get("outcome_parts"):
        share = float(parts["share"])
        text = (
            f"{', '.join(parts['columns'])} together give the outcome by {parts['how']} ({share:.2%} of its variance): "
        )
        text += "it looks as if it was computed from them."
        yield Check("outcome_parts", None, share, MIN_SHARE, False, text)
    outcome = f"The outcome {settings.get('outcome_name') or ''}".strip()
    for arm, counts in (settings.get("few_events") or {}).items():
        events, rows, usual = int(counts["events"]), int(counts["rows"]), f"{counts['usual']:g}"
        if events == 0 and not counts["binary"]:
            text = f"{outcome} is constant ({usual}) in the {arm} arm: arms cannot be compared in what one has alone."
            yield Check("constant_arm", None, 0.0, 1.0, False, text)
        else:
            text = f"{counted(events, 'row')} of {rows} in the {arm} arm {'has' if events == 1 else 'have'} an outcome "
            text += f"other than {usual}. " if events else f"other than {usual}: it is constant there. "
            text += "P-values and limits are rough where events are so few, and power is low."
            yield Check("few_events", None, float(events), float(MIN_EVENTS), False, text)
    yield from _given_check(settings)


def _given_check(settings: Mapping[str, Any]) -> Iterator[Check]:
    """Whether held-out rows are predicted better than is plausible for an outcome measured later."""
    model, kind = settings.get("model") or {}, settings.get("outcome_kind")
    gain = model.get("gain_over_marginal")
    if gain is None or kind == "count":  # of large counts there is more to learn
        return
    value, limit = float(gain), MAX_GAIN
    text = f"The model of the outcome predicts held-out rows {gain:.1f} nats per row better than none does"
    if kind in LEVELS:
        left = -max(model["held_out_log_likelihood"].values(), default=-math.inf)
        value, limit = gain / (gain + left), MAX_GAIN_SHARE
        text = f"The model of the outcome explains {value:.0%} of what can be learned of held-out rows"
    if value > limit:
        text += ": some columns together all but determine the outcome, as what is measured before it does not."
        yield Check("outcome_given", None, value, limit, False, text)
