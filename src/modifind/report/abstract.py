"""Page one of the report: does the treatment work, for whom, how certain is that, and what next.

The command line prints the same sentences.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import pandas as pd

from modifind.charts.heterogeneity import ForestDisplay
from modifind.charts.labels import Words, shortened, typographic, with_limits
from modifind.data.words import counted
from modifind.report.content import comparisons, design_sentence, n_tested, verdict
from modifind.result.concerns import control_sentence, summary
from modifind.result.selection_result import SelectionResult, p_text

MAX_LISTED = 8
MAX_NAME_WIDTH = 400.0  # pixels
MAX_GROUPS = 8
QUANTILES = {10: "10% quantile", 50: "median", 90: "90% quantile"}
CONTROL = {
    "bh": "the false discovery rate is controlled at {level} (Benjamini-Hochberg)",
    "by": "the false discovery rate is controlled at {level} (Benjamini-Yekutieli)",
    "holm": "the family-wise error rate is controlled at {level} (Holm)",
    "bonferroni": "the family-wise error rate is controlled at {level} (Bonferroni)",
    "none": "p-values are not adjusted for the number of features (level {level})",
}


@dataclass(frozen=True)
class Groups:
    """Subgroups of one kind: a heading such as "Clear benefit", and a line for each."""

    title: str
    lines: list[str]


@dataclass(frozen=True)
class Abstract:
    """Page one of a report, in sentences; parts without information are empty.

    Attributes
    ----------
    headline : str
        The answer in one or two sentences.
    parts : list of (str, str)
        Headings and texts: data, average, distribution, modification.
    modifiers : list of (str, str)
        Names of the selected features, and what each changes.
    groups : list of Groups
        For whom the effect is clear, and for whom there is no evidence of one.
    certainty : str
        What the checks and the placebo treatments found.
    steps : list of str
        What to do next.
    """

    headline: str
    parts: list[tuple[str, str]]
    modifiers: list[tuple[str, str]]
    groups: list[Groups]
    certainty: str
    steps: list[str]

    @classmethod
    def of(cls, result: SelectionResult) -> Abstract:
        """Write the abstract of a result."""
        parts = [("Data", data_sentence(result, Words.of(result)))]
        groups: list[Groups] = []
        for title, contrast in comparisons(result):
            words, of = Words.of(contrast), f", {title}" * bool(title)
            parts += [
                (f"{words.effect[0].upper()}{words.effect[1:]}{of}", average_sentence(contrast, words)),
                (f"Distribution{of}", distribution_sentence(contrast, words)),
            ]
            groups += [Groups(f"{group.title}{of}", group.lines) for group in clear_groups(contrast, words)]
        parts.append(("Effect modification", modification_sentence(result)))
        return cls(
            headline(result),
            [(title, text) for title, text in parts if text],
            [(str(name), verdict(result, str(name))) for name in result.selected],
            groups,
            certainty_sentence(result),
            next_steps(result),
        )


def effect_text(words: Words, effect: float, low: float, high: float) -> str:
    """An average effect with its limits, in units of the outcome.

    Examples
    --------
    >>> effect_text(Words(unit="mmHg"), -2.61, -3.4, -1.8), effect_text(Words(binary=True), 0.031, 0.01, 0.05)
    ('−2.6 mmHg (−3.4 to −1.8)', '3.1 percentage points (1.0 to 5.0)')
    >>> effect_text(Words(log=True), 0.0, -0.1, 0.1)
    '1.00 times (0.90 to 1.11)'
    """
    if words.log:
        effect, low, high = (math.exp(part) for part in (effect, low, high))
    elif words.binary and not words.is_ratio:
        effect, low, high = 100 * effect, 100 * low, 100 * high
    unit = "percentage points" if words.binary else words.unit
    if words.log or words.is_ratio:
        unit = "" if words.scale == "odds_ratio" else "times"
    value, *limits = with_limits(effect, low, high, ratio=words.log or words.is_ratio).partition(" (")
    return f"{value} {unit}{''.join(limits)}" if unit else f"{value}{''.join(limits)}"


def overall_effect(result: SelectionResult, name: str = "mean_effect") -> tuple[float, float, float] | None:
    """An effect over all rows and its limits, if known."""
    effect, low, high = (float(result.overall.get(f"{name}{end}", math.nan)) for end in ("", "_low", "_high"))
    return None if any(map(math.isnan, (effect, low, high))) else (effect, low, high)


def p_of(result: SelectionResult, test: str) -> float:
    """P-value of a global test; NaN if it was not made."""
    return float(result.tests["p_value"].get(test, math.nan))


def headline(result: SelectionResult, words: Words | None = None) -> str:
    """One or two sentences: whether the treatment has an average effect, and which features change it."""
    if result.by_arm:
        return " ".join(f"{title}: {headline(contrast)}" for title, contrast in comparisons(result))
    words = words or Words.of(result)
    chosen, average, alpha = list(map(str, result.selected)), overall_effect(result), float(result.settings["alpha"])
    on_them = f"depends on {_listed(chosen)}"
    if average is None:
        effect = words.the_effect
        return f"{effect[0].upper()}{effect[1:]} {on_them}." if chosen else f"No feature was found to change {effect}."
    if p_of(result, "mean") <= alpha:
        first = f"On average, {_change(words, *average)}."
        return f"{first} {f'The effect {on_them}.' if chosen else 'No feature was found to change that effect.'}"
    nothing = f"No effect {words.on_average} was found: {effect_text(words, *average)}."
    if chosen:
        return f"{nothing} However, the effect {on_them}."
    if p_of(result, "distribution") <= alpha:
        return f"{nothing} The distribution of {words.outcome} differs; no feature was found to change the effect."
    return f"{nothing} No feature was found to change it."


def _change(words: Words, effect: float, low: float, high: float) -> str:
    """Effect of the treatment on the outcome: "drug lowers pressure by 2.6", "drug multiplies visits by 0.56"."""
    subject = "the treatment" if words.treated == "treatment" else words.treated
    what = words.compared
    if words.log:
        effect, low, high = (math.exp(part) for part in (effect, low, high))
    if words.log or words.is_ratio:
        return f"{subject} multiplies {what} by {with_limits(effect, low, high, ratio=True)}"
    if effect >= 0:
        return f"{subject} raises {what} by {effect_text(words, effect, low, high)}"
    return f"{subject} lowers {what} by {effect_text(words, -effect, -high, -low)}"


def data_sentence(result: SelectionResult, words: Words) -> str:
    """Rows in each arm, the outcome, the number of features tested, and the design."""
    s = result.settings
    direction = f", {words.better} is better" if words.better else ""
    unit = f" ({words.unit}{direction})" if words.unit else f" ({direction[2:]})" if direction else ""
    tested = counted(n_tested(result), "feature")
    if s.get("interrupted"):
        tested = f"only {n_tested(result)} of {len(result.table)} features"
    arms = [f"{contrast.settings['n_treated']:,} {Words.of(contrast).treated}" for _, contrast in comparisons(result)]
    rows = _listed([*arms, f"{s['n_control']:,} {words.control}"])
    table = f"{s['n_rows']:,} rows: {rows}. Outcome: {words.outcome}{unit}. {tested[0].upper()}{tested[1:]} tested."
    return f"{table} {design_sentence(s)}".strip()


def average_sentence(result: SelectionResult, words: Words) -> str:
    """The average effect with its limits and its p-value."""
    average = overall_effect(result)
    if average is None:
        return ""
    kind = words.favours(average[0] - words.is_ratio) if p_of(result, "mean") <= result.settings["alpha"] else ""
    meant = f", a {kind}" if kind == "benefit" else f", {kind}" if kind else ""
    whom = "" if words.population == "all" else f" in the {words.whom}"
    compared = "relative to" if words.log or words.is_ratio else "minus"
    how = f"{words.treated} {compared} {words.control}, adjusted for all features"
    p_value = p_of(result, "mean")
    tail = "" if math.isnan(p_value) else f"; {p_text(p_value)}"
    return f"{effect_text(words, *average)}{meant}{whom}{tail}. This is {how}, with 95% limits."


def distribution_sentence(result: SelectionResult, words: Words) -> str:
    """Whether and how the whole distribution changes; a binary outcome is covered by its average."""
    p_value = p_of(result, "distribution")
    if math.isnan(p_value) or words.binary:
        return ""
    if p_value > result.settings["alpha"]:
        return f"No change was found ({p_text(p_value)})."
    differences = replace(words, scale="difference")  # whatever the averages are compared by
    known = {name: overall_effect(result, f"q{q}_effect") for q, name in QUANTILES.items()}
    texts = [f"{effect_text(differences, *effect)} at the {name}" for name, effect in known.items() if effect]
    if not texts:
        return f"It changes ({p_text(p_value)})."
    ratio, spread = overall_effect(result, "sd_ratio"), ""
    if ratio:
        spread = f"; the standard deviation under {words.treated} is {with_limits(*ratio)} times that under "
        spread += words.control
    return f"It changes ({p_text(p_value)}): {_listed(texts)}{spread}."


def modification_sentence(result: SelectionResult) -> str:
    """Whether any feature modifies the effect, and how false discoveries are controlled."""
    settings = result.settings
    control = control_sentence(settings) or CONTROL[settings["adjust"]].format(level=f"{100 * settings['alpha']:g}%")
    p_value = p_of(result, "modification")
    sure, tail = p_value <= settings["alpha"], "" if math.isnan(p_value) else f" ({p_text(p_value)})"
    if not result.selected and sure:
        return (
            f"There is evidence that the effect varies{tail}, but no single feature was found to change it; {control}."
        )
    if not result.selected:
        return f"No feature was found to change the effect{tail}; {control}. Small changes may have been missed."
    number = f"{len(result.selected)} of {counted(n_tested(result), 'feature')}"
    verb = "was" if len(result.selected) == 1 else "were"
    return f"{number} {verb} found to change the effect{tail * sure}; {control}."


def clear_groups(result: SelectionResult, words: Words) -> list[Groups]:
    """Subgroups of the selected features whose simultaneous limits exclude no effect, by direction."""
    chosen = list(map(str, result.selected))
    if not chosen or not len(result.subgroups):
        return []
    display = ForestDisplay.from_result(result, max_features=len(chosen), simultaneous=True)
    up, down = ("Clear increase", "Clear decrease")
    if words.better:
        up, down = (f"Clear {words.favours(side)}" for side in (1.0, -1.0))
    lines: dict[str, list[str]] = {down: [], up: [], "No clear effect": []}
    for row in display.limits().dropna(subset=["effect"]).to_dict("records"):
        none = words.neutral
        kind = up if row["low"] > none else down if row["high"] < none else "No clear effect"
        limits = effect_text(words, row["effect"], row["low"], row["high"])
        lines[kind].append(f"{_group_name(result, row['column'], row['level'])}: {limits}")
    lost = display.subgroups[display.subgroups["effect"].isna()]
    if words.is_ratio and len(lost):
        names = (_group_name(result, row["column"], row["level"]) for row in lost.to_dict("records"))
        lines["No ratio"] = [f"{name}: no outcome to compare" for name in names]
    order = sorted(lines, key=lambda name: (name == "No ratio", name == "No clear effect", "harm" in name))
    return [Groups(name, _first(lines[name])) for name in order if lines[name]]


def _group_name(result: SelectionResult, column: str, level: object) -> str:
    equals = "= " if result.kind(column) == "discrete" else ""
    return f"{column} {equals}{typographic(str(level))}"


def _first(lines: list[str]) -> list[str]:
    return lines if len(lines) <= MAX_GROUPS else [*lines[:MAX_GROUPS], f"{len(lines) - MAX_GROUPS} more"]


def certainty_sentence(result: SelectionResult) -> str:
    """Results of the checks and of placebo treatments."""
    checks = [(f"{title}: " if title else "", contrast.checks) for title, contrast in comparisons(result)]
    checked = " ".join(f"{prefix}{summary(rows).partition(';')[0]}." for prefix, rows in checks if len(rows))
    placebo = "" if result.placebo is None else f" {result.placebo.text}"
    return f"{checked}{placebo}".strip()


def next_steps(result: SelectionResult) -> list[str]:
    """Recommended next steps, the most urgent first."""
    checks = pd.concat([contrast.checks for _, contrast in comparisons(result)])
    failed = checks[~checks["passed"].astype(bool) & checks["validity"].astype(bool)]
    steps = [f"{remedy[0].upper()}{remedy[1:]}" for remedy in dict.fromkeys(failed["remedy"]) if remedy][:2]
    if result.placebo is None:
        steps.append(
            "Repeat the analysis with placebo treatments, which change nothing: modifind placebo, or placebo_runs=20."
        )
    elif result.placebo.warning:
        steps.append("Do not rely on the selection until placebo treatments find no more than chance allows.")
    if result.selected:
        names = _listed([str(name) for name in result.selected][:MAX_LISTED])
        steps.append(
            f"Confirm {names} in independent data; effects in subgroups selected here are likely to be smaller there."
        )
    else:
        steps.append(
            "To detect smaller changes, collect more rows or test fewer features (adjust_for keeps the others in the "
            "models)."
        )
    return steps


def _listed(names: list[str]) -> str:
    shown = [shortened(name, MAX_NAME_WIDTH) for name in names[:MAX_LISTED]]
    if len(names) > MAX_LISTED:
        return f"{', '.join(shown)} and {len(names) - MAX_LISTED} more features"
    return "".join(shown) if len(shown) < 2 else f"{', '.join(shown[:-1])} and {shown[-1]}"
