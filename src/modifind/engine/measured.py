"""Values of a statistic for columns of a table in pieces, as observed and resampled.

A value takes a pass over the rows for each of the sums that the statistic is made of, see `SummedStatistic`; columns
take their passes together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from modifind._threads import one_thread
from modifind._typing import Array
from modifind.data.feature_groups import Unit
from modifind.data.feature_matrix import FeatureTable
from modifind.data.pieces import Piece, Schema
from modifind.data.survey import some
from modifind.engine.assemble import failure_of
from modifind.engine.passes import Pieces
from modifind.engine.progress import Progress
from modifind.engine.scored import OBSERVED, Measured, Scored, Scoring
from modifind.engine.testers import TIE
from modifind.inference import ConditionalRandomizationTest, CRTOutcome
from modifind.statistics.contract import Statistic, SummedStatistic, called
from modifind.statistics.wcmmd import weighted_bandwidth

FIRST_BATCH, MOST_BATCH = 25, 100  # resamples of a feature at a time
NOTHING_RESAMPLED = CRTOutcome(0.0, 1.0, 0, 0)  # of a feature that is the same in all rows of the sample
BATCH_BYTES = 2**25  # of the sums that are under way
Asked: TypeAlias = tuple[int, int]  # a feature, and the number of a resample


def size_of(sums: Any) -> int:
    """Bytes that sums take, about: those of their arrays."""
    if isinstance(sums, np.ndarray):
        return sums.nbytes
    parts: Iterable[Any] = ()
    if isinstance(sums, Mapping):
        parts = sums.values()
    elif isinstance(sums, list | tuple):
        parts = sums
    elif is_dataclass(sums):
        parts = (getattr(sums, own.name) for own in fields(sums))
    return 64 + sum(map(size_of, parts))


@dataclass(frozen=True)
class PassSums:
    """What one pass has added up.

    Attributes
    ----------
    n_rows : int
        Rows that were passed.
    found : dict
        Sums by feature and number of the resample.
    failures : dict
        Why there are none, by feature.
    """

    n_rows: int
    found: Mapping[Asked, Any]
    failures: Mapping[int, str] = field(default_factory=dict)

    def __add__(self, other: PassSums) -> PassSums:
        """The sums of both sets of rows."""
        both = self.found.keys() & other.found.keys()  # a feature that failed for some rows has no sums of these
        found = {asked: self.found[asked] + other.found[asked] for asked in sorted(both)}
        return PassSums(self.n_rows + other.n_rows, found, {**other.failures, **self.failures})


@dataclass(frozen=True)
class MeasuringPass:
    """What is to be measured, and the sums of earlier passes.

    Attributes
    ----------
    scoring : Scoring
        How pieces are read, and scores of their rows.
    statistic : SummedStatistic
        Without rows.
    features : dict of Measured
        By place.
    known : dict
        Sums of earlier passes, by feature and number of the resample.
    """

    scoring: Scoring
    statistic: SummedStatistic
    features: Mapping[int, Measured]
    known: Mapping[Asked, tuple[Any, ...]] = field(default_factory=dict)

    def sums(self, piece: Piece) -> PassSums:
        """Sums over the rows of a piece, by one thread, in blocks that bound memory."""
        with one_thread():
            total: PassSums | None = None
            for rows in self.scoring.blocks(piece):
                own = self._block_sums(rows)
                total = own if total is None else total + own
            assert total is not None
            return total

    def _block_sums(self, rows: Scored) -> PassSums:
        block = rows.block
        prepared = self.statistic.at(block.y, block.treatment, block.weights)
        found: dict[Asked, Any] = {}
        failures: dict[int, str] = {}
        for place, numbers in _by_feature(self.known).items():
            try:
                columns = self.features[place].columns(rows, numbers)
                for number, column in zip(numbers, columns, strict=True):
                    found[place, number] = prepared.sums(column, self.known[place, number])
            except Exception as error:
                failures[place] = failure_of(error, block.table.names[place])
        kept = {asked: own for asked, own in found.items() if asked[0] not in failures}
        return PassSums(block.y.size, kept, failures)


def check_sums(statistic: Statistic, prepared: Any) -> None:
    """Refuse a statistic that has no sums over rows although it says so."""
    lacks = [name for name in ("at", "sums", "value_of") if not hasattr(prepared, name)]
    if lacks:
        raise ValueError(
            f"{called(statistic)} has in_pieces = True, but what it prepares, {type(prepared).__name__}, has no "
            f"{' and no '.join(lacks)}"
        )


def measured_columns(
    table: FeatureTable,
    schema: Schema,
    units: Sequence[Unit],
    weights: Array | None,
    seed: np.random.SeedSequence,
) -> dict[int, Measured]:
    """How columns that have more than one value are measured; `table` and `weights` are those of the sample.

    Bandwidths are those of the sample. Seeds are used as for a table in memory, so that the same rows have the same.
    """
    found = {}
    children = seed.spawn(1 + max(unit.place for unit in units))
    for unit in units:
        first, *_ = children[unit.place].spawn(3 if len(unit.members) > 1 else 2)
        for m, own in unit.with_seeds(first):
            if schema.constant[m]:
                continue
            levels, seen, bandwidth = table.n_levels(m), table.observed(m), 1.0
            if not levels and seen.any():
                rows = table.values[seen, m], some(weights, seen)
                bandwidth = weighted_bandwidth(*rows, np.random.default_rng(own)) or 1.0
            found[m] = Measured(m, levels, bandwidth, None if levels else schema.limits[m])
    return found


def _by_feature(asked: Iterable[Asked]) -> dict[int, list[int]]:
    numbers: dict[int, list[int]] = {}
    for feature, number in asked:
        numbers.setdefault(feature, []).append(number)
    return numbers


def measure(
    pieces: Pieces,
    work: MeasuringPass,
    known: Mapping[Asked, tuple[Any, ...]],
    n_rows: int,
    advance: Progress = lambda done, total: None,
) -> tuple[dict[Asked, float], dict[int, str]]:
    """Pass over the rows until every value is known; values, and why features have none.

    Parameters
    ----------
    pieces : Pieces
        The table.
    work : MeasuringPass
        What is to be measured.
    known : dict
        What is asked for, with the sums that are known already.
    n_rows : int
        Rows of the table.
    advance : callable
        Told of the rows of each pass.
    """
    values: dict[Asked, float] = {}
    failures: dict[int, str] = {}
    while known:
        total: PassSums = pieces.sums(replace(work, known=known), n_rows, advance, saved=False)
        failures |= total.failures
        left: dict[Asked, tuple[Any, ...]] = {}
        for asked, sums in total.found.items():
            passes = (*known[asked], sums)
            value = work.statistic.value_of(passes)
            if value is None:
                left[asked] = passes
            else:
                values[asked] = value
        known = left
    return values, failures


def resampled_tests(
    pieces: Pieces,
    work: MeasuringPass,
    test: ConditionalRandomizationTest,
    n_resamples: int,
    n_rows: int,
    advance: Progress,
    sizes: Mapping[int, int],
) -> dict[int, CRTOutcome | str]:
    """Compare every feature with resampled copies of it; the outcome, or why there is none.

    `sizes` are bytes that the sums of one of its columns take, about.

    Features are resampled in batches. Within one, resamples are looked at in their order, and a feature whose answer is
    known goes no further, as for a table in memory: nothing depends on the size of the batches.
    """
    found: dict[int, CRTOutcome | str] = {}
    observed: dict[int, float] = {}
    state = dict.fromkeys(work.features, (0, 0))
    done, most = 0, FIRST_BATCH
    advance(0, len(state))
    while state:
        size = max(1, min(most, BATCH_BYTES // sum(sizes[m] for m in state)))
        numbers = range(done + 1, min(done + size, n_resamples) + 1)
        first = [] if observed else [OBSERVED]
        known: dict[Asked, tuple[Any, ...]] = {(m, number): () for m in state for number in (*first, *numbers)}
        values, failures = measure(pieces, work, known, n_rows)
        found |= failures
        for m in [own for own in state if own not in failures]:
            observed.setdefault(m, values.get((m, OBSERVED), np.nan))
            if not np.isfinite(observed[m]):
                found[m] = f"the statistic is {observed[m]} for the feature as observed; it must be finite"
                continue
            drawn = (_tied(values[m, number], observed[m]) for number in numbers)
            outcome, state[m] = test.looked_at(observed[m], drawn, n_resamples, state[m])
            if outcome is not None:
                found[m] = outcome
        state = {m: own for m, own in state.items() if m not in found}
        done, most = done + len(numbers), MOST_BATCH
        advance(len(found), len(work.features))
    return found


def _tied(value: float, observed: float) -> float:
    """A resample that repeats the data ties with it, whatever the order of the rows makes of the last digits."""
    return observed if abs(value - observed) <= TIE * observed else value
