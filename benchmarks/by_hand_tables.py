"""Markdown tables of the runs of `by_hand.py`: shares, paired differences, standard errors and verdicts."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

Record = dict[str, Any]
OURS = "modifind"


class Target(NamedTuple):
    """What the default's figure should be: at least or most a share, or at least as good as the peer, or above it."""

    kind: str
    share: float = 0.0

    def __str__(self) -> str:
        if self.kind in ("least", "most"):
            return f"at {self.kind} {self.share:.2f}"
        return "at least the peer" if self.kind == "peer" else "above the peer"


AS_PEER, ABOVE_PEER, LEVEL = Target("peer"), Target("above"), Target("most", 0.05)


class Estimate(NamedTuple):
    """A mean or share and its standard error."""

    value: float
    error: float

    def __str__(self) -> str:
        if math.isnan(self.value):
            return "-"
        return f"{self.value:.3f}" if math.isnan(self.error) else f"{self.value:.3f} ({self.error:.3f})"


NOTHING = Estimate(math.nan, math.nan)


def mean(values: Iterable[float | None]) -> Estimate:
    known = np.array([value for value in values if value is not None], dtype=float)
    if not known.size:
        return NOTHING
    return Estimate(
        float(known.mean()), float(known.std(ddof=1) / math.sqrt(known.size)) if known.size > 1 else math.nan
    )


def ratio(parts: Iterable[tuple[Hashable, float, float]]) -> Estimate:
    """Sum of counts over sum of numbers counted; those of one group go together."""
    sums: dict[Hashable, list[float]] = {}
    for group, part, whole in parts:
        entry = sums.setdefault(group, [0.0, 0.0])
        entry[0], entry[1] = entry[0] + part, entry[1] + whole
    pairs = np.array(list(sums.values()), dtype=float)
    if not len(pairs) or pairs[:, 1].sum() == 0:
        return NOTHING
    share = pairs[:, 0].sum() / pairs[:, 1].sum()
    rest, many = pairs[:, 0] - share * pairs[:, 1], len(pairs)
    error = math.sqrt(many / (many - 1) * (rest**2).sum()) / pairs[:, 1].sum() if many > 1 else math.nan
    return Estimate(float(share), error)


def verdict(target: Target, figure: Estimate, difference: Estimate, counted: int) -> str:
    """Whether a target is met, by how far a figure is on its wrong side in standard errors.

    Runs that all agree, perhaps by chance, would have an error of zero: theirs is that of so many independent answers
    whose chance is the target's. The error of a difference is at least one answer of them all.
    """
    if target.kind in ("least", "most"):
        sign = 1 if target.kind == "most" else -1
        short = sign * (figure.value - target.share)
        error = figure.error or math.sqrt(target.share * (1 - target.share) / counted)
    else:
        short, error = -difference.value, max(difference.error, 1 / counted)
    if math.isnan(short) or math.isnan(error):
        return "-"
    if short < 0 or (short == 0 and target.kind != "above"):
        return "meets"
    return "within 2 SE" if short <= 2 * error else "misses"


def null_share(records: Sequence[Record], method: str, group: Callable[[Record], Hashable]) -> Estimate:
    """Share of null features with p <= 0.05."""
    return ratio((group(one), *one["methods"][method]["null"]) for one in records if method in one["methods"])


def by_seed(record: Record) -> Hashable:
    return record["design"], record["seed"]


def by_table(record: Record) -> Hashable:
    return record.get("table", record["design"])


def marks(records: Sequence[Record], method: str, name: str) -> list[float | None]:
    return [one["methods"].get(method, {}).get(name) for one in records]


def markdown(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    lines = (head, ["---"] * len(head), *rows)
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def of_design(records: Sequence[Record]) -> dict[str, list[Record]]:
    grouped: dict[str, list[Record]] = {}
    for record in records:
        grouped.setdefault(record["design"], []).append(record)
    return grouped


def peers_of(records: Sequence[Record]) -> list[str]:
    return list(dict.fromkeys(name for one in records for name in one["methods"] if name != OURS))


def seconds(records: Sequence[Record]) -> str:
    return f"{np.mean([one['seconds'] for one in records]):.1f}"


def power_table(records: Sequence[Record], targets: dict[str, Target]) -> str:
    """One row for every design and peer."""
    head = ["design", "n", "runs", "found by modifind (SE)", "peer", "found by the peer (SE)", "difference (paired SE)"]
    head += ["target", "verdict", "null p <= .05: modifind (SE)", "peer (SE)", "FDP: modifind", "peer", "CPU s per run"]
    rows = []
    for design, runs in of_design(records).items():
        for peer in peers_of(runs) or ["-"]:
            ours, theirs = marks(runs, OURS, "score"), marks(runs, peer, "score")
            both = [(x, y) for x, y in zip(ours, theirs, strict=True) if x is not None and y is not None]
            figure, difference, target = mean(ours), mean(x - y for x, y in both), targets[design]
            cells = [design, runs[0]["n"], len(runs), figure, peer, mean(theirs), difference]
            cells += [target, verdict(target, figure, difference, len(runs)), null_share(runs, OURS, by_seed)]
            cells += [null_share(runs, peer, by_seed)]
            cells += [Estimate(mean(marks(runs, method, "fdp")).value, math.nan) for method in (OURS, peer)]
            rows.append([*cells, seconds(runs)])
    return markdown(head, rows)


def level_table(records: Sequence[Record], targets: dict[str, Target], *, pooled: bool = False) -> str:
    """Null features alone: one row for every design, and one for all together."""
    head = ["design", "n", "runs", "null p", "p <= .05: modifind (SE)", "target", "verdict", "with any find (SE)"]
    head += ["runs with a find", "peer", "p <= .05: peer (SE)", "with any find: peer (SE)", "CPU s per run"]
    named = [(design, str(runs[0]["n"]), runs, by_seed) for design, runs in of_design(records).items()]
    if len(named) > 1:
        named.append(("all", "", list(records), by_table if pooled else by_seed))
    rows = []
    for design, n, runs, group in named:
        share, target = null_share(runs, OURS, group), targets.get(design, LEVEL)
        count = sum(one["methods"][OURS]["null"][1] for one in runs)
        judged = verdict(target, share, NOTHING, count)
        cells = [design, n, len(runs), count, share, target, judged, finds(runs, OURS, group)]
        cells.append(f"{sum(bool(value) for value in marks(runs, OURS, 'any'))} of {len(runs)}")
        peers = peers_of(runs)
        cells.append(" / ".join(peers) or "-")
        cells.append(" / ".join(str(null_share(runs, peer, group)) for peer in peers) or "-")
        cells.append(" / ".join(str(finds(runs, peer, group)) for peer in peers) or "-")
        rows.append([*cells, seconds(runs)])
    return markdown(head, rows)


def finds(records: Sequence[Record], method: str, group: Callable[[Record], Hashable]) -> Estimate:
    """Share of runs in which something null is selected."""
    return ratio((group(one), one["methods"][method]["any"], 1) for one in records if method in one["methods"])


def replication_table(records: Sequence[Record], targets: dict[str, Target]) -> str:
    """Finds of a half and what of them the other half repeats; the pooled errors resample tables."""
    head = ["outcome", "rows of a half", "halvings"]
    head += [f"{name} ({method})" for method in (OURS, "by hand") for name in ("finds", "replicated", "rate (SE)")]
    head += ["CPU s per half"]
    rows = []
    for design, runs in [*of_design(records).items(), ("all", list(records))]:
        group = by_table if design == "all" else by_seed
        cells: list[Any] = [design, "" if design == "all" else runs[0]["n"], len(runs)]
        for method in (OURS, "by hand"):
            parts = [(group(one), *(one["methods"][method][key] for key in ("replicated", "finds"))) for one in runs]
            cells += [sum(part[2] for part in parts), sum(part[1] for part in parts), ratio(parts)]
        rows.append([*cells, seconds(runs)])
    return f"{markdown(head, rows)}\n\n{replication_difference(records)}"


def replication_difference(records: Sequence[Record]) -> str:
    """Modifind less the test by hand, pooled: of the rates and of the finds that are replicated."""
    rates = {method: replicated(records, method) for method in (OURS, "by hand")}
    tables = sorted({str(by_table(one)) for one in records})
    rng, drawn = np.random.default_rng(0), []
    counts = {method: np.array([rates[method][name] for name in tables]) for method in rates}
    for _ in range(2000):
        rows = rng.integers(0, len(tables), len(tables))
        sums = [counts[method][rows].sum(axis=0) for method in (OURS, "by hand")]
        drawn.append([part[0] / max(part[1], 1) for part in sums] + [(sums[0] - sums[1])[0]])
    values = np.array(drawn)
    sums = [counts[method].sum(axis=0) for method in (OURS, "by hand")]
    rate = sums[0][0] / max(sums[0][1], 1) - sums[1][0] / max(sums[1][1], 1)
    more = sums[0][0] - sums[1][0]
    difference = values[:, 0] - values[:, 1]
    return (
        f"modifind less by hand: rate {rate:+.3f} ({difference.std():.3f}), replicated finds {more:+.0f} "
        f"({values[:, 2].std():.1f}); errors by resampling {len(tables)} tables."
    )


def replicated(records: Sequence[Record], method: str) -> dict[str, Any]:
    """Replicated finds and finds of every table."""
    sums: dict[str, Any] = {}
    for one in records:
        counted = np.array([one["methods"][method]["replicated"], one["methods"][method]["finds"]], dtype=float)
        sums[str(by_table(one))] = sums.get(str(by_table(one)), 0.0) + counted
    return sums


def versions_table(records: Sequence[Record], before: Sequence[Record]) -> str:
    """The same runs by another version: what each finds, and the paired difference."""
    head = ["design", "runs of both", "before", "now", "difference (paired SE)", "null p <= .05 before", "now"]
    earlier = {by_seed(one): one for one in before}
    rows = []
    for design, runs in of_design(records).items():
        both = [(earlier[by_seed(one)], one) for one in runs if by_seed(one) in earlier]
        if not both:
            continue
        first, second = ([pair[k] for pair in both] for k in (0, 1))
        scores = [marks(side, OURS, "score") for side in (first, second)]
        differences = [y - x for x, y in zip(*scores, strict=True) if x is not None and y is not None]
        cells = [design, len(both), mean(scores[0]), mean(scores[1]), mean(differences)]
        rows.append([*cells, null_share(first, OURS, by_seed), null_share(second, OURS, by_seed)])
    return markdown(head, rows)
