"""Conditional randomisation tests: the statistic of a feature against that of resampled copies.

For a table in memory the statistic is computed at once. For a longer table it takes one pass over the rows for each of
its sums, see `SummedStatistic`; all columns share these passes. Resampled values are a function of seed, feature,
resample number and row number, so that they depend neither on how the table is divided nor on the workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, TypeAlias, cast

import numpy as np

from modifind._typing import Array
from modifind._workers import Progress
from modifind.data.clusters import row_uniforms, row_words
from modifind.data.features import FeatureTable, Unit
from modifind.data.schema import Schema
from modifind.data.weights import Weights
from modifind.engine.passes import RowPass, ScoredRows, TablePieces
from modifind.engine.record import failure_of
from modifind.explain.views import bandwidth_of
from modifind.inference import ConditionalRandomizationTest, CRTOutcome
from modifind.nuisance.conditional import Conditional, ConditionalRule
from modifind.nuisance.conditional.distributions import quantiles_of_rows
from modifind.nuisance.propensity.fitted import ScoreProfile
from modifind.nuisance.propensity.scores import FittedPropensity
from modifind.statistics.contract import Column, PreparedStatistic, Statistic, SummedStatistic, called
from modifind.statistics.prepared_wcmmd import PreparedWCMMD

FIRST_BATCH, MAX_BATCH = 25, 100  # resamples of a feature at a time
NOTHING_RESAMPLED = CRTOutcome(0.0, 1.0, 0, 0)  # of a feature that is the same in all rows of the sample
BATCH_BYTES = 2**25  # of the sums that are under way
TIE = 1e-10  # relative difference of two statistics that only rounding keeps apart
MARGIN = 3.0  # bandwidths beyond the range of a feature that resampled values may reach
OBSERVED = 0  # number of the column as it is; resamples are counted from 1
ColumnKey: TypeAlias = tuple[int, int]  # a feature, and the number of a resample


@dataclass(frozen=True)
class ColumnMeasure:
    """How the columns of one feature are measured.

    Attributes
    ----------
    feature, n_levels, bandwidth, limits
        As of `Column`.
    rule : ConditionalRule, optional
        Distribution that it is resampled from; without one it is measured as it is, by the scores of the rows.
    key : int
        Random key of its resamples.
    follows : bool
        Whether scores follow resampled values.
    profile : array, optional
        Values that scores along it are a table of.
    """

    feature: int
    n_levels: int
    bandwidth: float
    limits: tuple[float, float] | None
    rule: ConditionalRule | None = None
    key: int = 0
    follows: bool = False
    profile: Array | None = None

    def resampled(self, rule: ConditionalRule, key: int, *, follows: bool, profile: Array | None) -> ColumnMeasure:
        """The same for resampled columns, whose values extend slightly further."""
        limits = None
        if self.limits is not None:
            limits = self.limits[0] - MARGIN * self.bandwidth, self.limits[1] + MARGIN * self.bandwidth
        return replace(self, limits=limits, rule=rule, key=key, follows=follows, profile=profile)

    def columns(self, rows: ScoredRows, numbers: list[int]) -> Iterator[Column]:
        """The observed column and resampled ones, by number, for some rows."""
        table, scores = rows.block.table, rows.propensity.scores
        profile = rows.propensity.profile(self.feature, values=self.profile) if self.follows else None
        for values in self._values(rows, numbers):
            followed = scores if profile is None else profile(values)
            yield Column(self.feature, values, followed, table.n_levels(self.feature), self.bandwidth, self.limits)

    def _values(self, rows: ScoredRows, numbers: list[int]) -> Iterator[Array]:
        block = rows.block
        drawn: Iterator[Array] = iter(())
        resamples = [number for number in numbers if number != OBSERVED]
        if self.rule is not None and resamples:
            conditional = self.rule.conditional(block.table, block.treatment, rows.folds[0])
            keys = tuple(row_words(np.array(resamples), self.key).tolist())
            values = quantiles_of_rows(conditional, row_uniforms(block.numbers, keys).T)
            drawn = iter(values if self.limits is None or self.n_levels else np.clip(values, *self.limits))
        for number in numbers:
            yield block.table.values[:, self.feature] if number == OBSERVED else next(drawn)


@dataclass(frozen=True)
class ResamplingTest:
    """The test of a feature when all rows are at hand.

    Attributes
    ----------
    statistic, prepared : Statistic, PreparedStatistic
        What is measured.
    crt : ConditionalRandomizationTest
        How statistics become p-values.
    n_resamples : int
        Resamples of a feature, at most.
    propensity : FittedPropensity
        Scores of the rows, also with other values of a feature.
    table : FeatureTable
        The features.
    """

    statistic: Statistic
    prepared: PreparedStatistic
    crt: ConditionalRandomizationTest
    n_resamples: int
    propensity: FittedPropensity
    table: FeatureTable

    def __call__(
        self, feature: int, conditional: Conditional, bandwidth: float, rng: np.random.Generator
    ) -> CRTOutcome:
        """Compare the feature with resampled copies of it."""
        levels = self.table.n_levels(feature)
        follows = self.statistic.follows_scores
        profile = self.propensity.profile(feature, self.statistic.device) if follows else None

        def statistic(values: Array) -> float:
            # The data and its resamples are scored by the same function, which is what makes them comparable.
            followed = self.propensity.scores if profile is None else profile(values)
            value = np.asarray(self.prepared.value(Column(feature, values, followed, levels, bandwidth)), dtype=float)
            if value.ndim:
                raise ValueError(f"{called(self.statistic)}: value must be a number; found shape {value.shape}")
            return float(value)

        observed = statistic(self.table.values[:, feature])
        if not np.isfinite(observed):
            raise ValueError(f"{called(self.statistic)} is {observed} for the feature as observed; it must be finite")
        evaluate: Callable[[Array], Any] = statistic
        on_device = self.statistic.device != "cpu"
        if on_device:
            evaluate = self._on_device(profile, statistic, observed, bandwidth, levels)
        return self.crt.run(observed, lambda k: conditional.draw(rng, k), evaluate, self.n_resamples, batched=on_device)

    def _on_device(
        self,
        profile: ScoreProfile | None,
        statistic: Callable[[Array], float],
        observed: float,
        bandwidth: float,
        n_levels: int,
    ) -> Callable[[Array], Array]:
        """Function that computes the statistics of many columns in torch; `statistic` serves those that need numpy."""
        from modifind.nuisance.propensity.fitted import DeviceProfile, FixedScores
        from modifind.statistics.wcmmd_torch import DeviceWCMMD

        device, known = self.statistic.device, self.propensity.scores
        prepared = cast(PreparedWCMMD, self.prepared)
        wcmmd = DeviceWCMMD(prepared, device, bandwidth=bandwidth, n_levels=n_levels)
        scores = FixedScores(known, device) if profile is None else DeviceProfile(profile, device)

        def statistics(columns: Array) -> Array:
            values, left = wcmmd.importances(columns, lambda x: prepared.capped(scores(x)))
            for k in np.flatnonzero(left):
                values[k] = statistic(columns[k])
            # A resample that repeats the data ties with it, whatever the device makes of the last digits.
            return np.where(np.abs(values - observed) <= TIE * observed, observed, values)

        return statistics


def size_of(sums: Any) -> int:
    """Approximate size in bytes of the arrays of sums."""
    if isinstance(sums, np.ndarray):
        return sums.nbytes
    parts: Iterable[Any] = ()
    if isinstance(sums, Mapping):
        parts = sums.values()
    elif isinstance(sums, list | tuple):
        parts = sums
    elif is_dataclass(sums):
        parts = (getattr(sums, known.name) for known in fields(sums))
    return 64 + sum(map(size_of, parts))


@dataclass(frozen=True)
class PassSums:
    """The sums of one pass.

    Attributes
    ----------
    n_rows : int
        Rows that were passed.
    columns : dict
        Sums by feature and number of the resample.
    failures : dict
        Why there are none, by feature.
    """

    n_rows: int
    columns: Mapping[ColumnKey, Any]
    failures: Mapping[int, str] = field(default_factory=dict)

    def __add__(self, other: PassSums) -> PassSums:
        """Add the sums of other rows."""
        both = self.columns.keys() & other.columns.keys()  # a feature that failed for some rows has no sums of these
        columns = {key: self.columns[key] + other.columns[key] for key in sorted(both)}
        return PassSums(self.n_rows + other.n_rows, columns, {**other.failures, **self.failures})


@dataclass(frozen=True)
class MeasuringPass(RowPass):
    """Columns to measure in the next pass, with the sums of earlier passes.

    Attributes
    ----------
    statistic : SummedStatistic
        Without rows.
    features : dict of ColumnMeasure
        By place.
    known : dict
        Sums of earlier passes, by feature and number of the resample.
    """

    statistic: SummedStatistic
    features: Mapping[int, ColumnMeasure]
    known: Mapping[ColumnKey, tuple[Any, ...]] = field(default_factory=dict)

    def block_sums(self, rows: ScoredRows) -> PassSums:
        """Sums over a block of rows for every requested column."""
        block = rows.block
        prepared = self.statistic.at(rows.nuisances)
        sums: dict[ColumnKey, Any] = {}
        failures: dict[int, str] = {}
        for feature, numbers in _by_feature(self.known).items():
            try:
                columns = self.features[feature].columns(rows, numbers)
                for number, column in zip(numbers, columns, strict=True):
                    sums[feature, number] = prepared.sums(column, self.known[feature, number])
            except Exception as error:
                failures[feature] = failure_of(error, block.table.names[feature])
        kept = {key: of_column for key, of_column in sums.items() if key[0] not in failures}
        return PassSums(block.y.size, kept, failures)


def check_sums(statistic: Statistic, prepared: Any) -> None:
    """Refuse a statistic that declares sums over rows but lacks them."""
    lacks = [name for name in ("at", "sums", "value_of") if not hasattr(prepared, name)]
    if lacks:
        raise ValueError(
            f"{called(statistic)} has in_pieces = True, but what it prepares, {type(prepared).__name__}, has no "
            f"{' and no '.join(lacks)}"
        )


def measured_columns(
    table: FeatureTable, schema: Schema, units: Sequence[tuple[Unit, np.random.SeedSequence]], weights: Weights
) -> dict[int, ColumnMeasure]:
    """How the non-constant columns of seeded units are measured, with bandwidths from the sample."""
    columns = ((m, seed) for unit, unit_seed in units for m, seed in unit.with_seeds(unit_seed))
    return {
        m: ColumnMeasure(
            m,
            table.n_levels(m),
            bandwidth_of(table, m, weights, seed),
            None if table.n_levels(m) else schema.limits[m],
        )
        for m, seed in columns
        if not schema.constant[m]
    }


def _by_feature(keys: Iterable[ColumnKey]) -> dict[int, list[int]]:
    numbers: dict[int, list[int]] = {}
    for feature, number in keys:
        numbers.setdefault(feature, []).append(number)
    return numbers


def measure(
    pieces: TablePieces,
    work: MeasuringPass,
    known: Mapping[ColumnKey, tuple[Any, ...]],
    n_rows: int,
    advance: Progress = lambda done, total: None,
) -> tuple[dict[ColumnKey, float], dict[int, str]]:
    """Pass over the rows until every value is known; return values, and reasons for failed features.

    Parameters
    ----------
    pieces : TablePieces
        The table.
    work : MeasuringPass
        What is to be measured.
    known : dict
        The columns asked for, with the sums that are known already.
    n_rows : int
        Rows of the table.
    advance : callable
        Told of the rows of each pass.
    """
    values: dict[ColumnKey, float] = {}
    failures: dict[int, str] = {}
    while known:
        total: PassSums = pieces.sums(replace(work, known=known), n_rows, advance, saved=False)
        failures |= total.failures
        left: dict[ColumnKey, tuple[Any, ...]] = {}
        for key, sums in total.columns.items():
            passes = (*known[key], sums)
            value = work.statistic.value_of(passes)
            if value is None:
                left[key] = passes
            else:
                values[key] = value
        known = left
    return values, failures


def resampled_tests(
    pieces: TablePieces,
    work: MeasuringPass,
    test: ConditionalRandomizationTest,
    n_resamples: int,
    n_rows: int,
    advance: Progress,
    sizes: Mapping[int, int],
) -> dict[int, CRTOutcome | str]:
    """Compare every feature with resampled copies; return the outcome, or the reason of a failure.

    `sizes` are the approximate sizes in bytes of the sums of one column of each feature. Features are resampled in
    batches. Within one, resamples are examined in order, and a feature whose answer is known stops, as for a table in
    memory: nothing depends on the size of the batches.
    """
    outcomes: dict[int, CRTOutcome | str] = {}
    observed: dict[int, float] = {}
    state = dict.fromkeys(work.features, (0, 0))
    done, most = 0, FIRST_BATCH
    advance(0, len(state))
    while state:
        size = max(1, min(most, BATCH_BYTES // sum(sizes[m] for m in state)))
        numbers = range(done + 1, min(done + size, n_resamples) + 1)
        first = [] if observed else [OBSERVED]
        known: dict[ColumnKey, tuple[Any, ...]] = {(m, number): () for m in state for number in (*first, *numbers)}
        values, failures = measure(pieces, work, known, n_rows)
        outcomes |= failures
        for m in [feature for feature in state if feature not in failures]:
            observed.setdefault(m, values.get((m, OBSERVED), np.nan))
            if not np.isfinite(observed[m]):
                outcomes[m] = f"the statistic is {observed[m]} for the feature as observed; it must be finite"
                continue
            drawn = (_tied(values[m, number], observed[m]) for number in numbers)
            outcome, state[m] = test.looked_at(observed[m], drawn, n_resamples, state[m])
            if outcome is not None:
                outcomes[m] = outcome
        state = {m: counts for m, counts in state.items() if m not in outcomes}
        done, most = done + len(numbers), MAX_BATCH
        advance(len(outcomes), len(work.features))
    return outcomes


def _tied(value: float, observed: float) -> float:
    """Treat a resample that repeats the data as tied, although summation order may change the last digits."""
    return observed if abs(value - observed) <= TIE * observed else value
