"""One two-arm analysis of a table, from the user's input to the result."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from joblib import effective_n_jobs

from modifind._system import locked_folder, memory_advice, warn_of_memory
from modifind._warned import collected, recorded, warn
from modifind.data.clusters import RowPlan
from modifind.data.containers import is_distributed, row_scores
from modifind.data.features import read_feature_groups
from modifind.data.missing import DroppedRows
from modifind.data.sources import ALL_ROWS, FilteredRows, RowFilter, Source, is_source
from modifind.engine.checkpoint import UNSAVED, Checkpoint, continued_pass, continued_tests, seed_of
from modifind.engine.findings import TableFindings, assemble
from modifind.engine.fitting import fit_table
from modifind.engine.passes import LocalPieces, NullCheckpoint, TablePieces
from modifind.engine.placebo import run_placebos
from modifind.engine.preparation import PreparedTable, check_settings, read_for, refuse_later_columns, seed_stream
from modifind.engine.reading import Data, FirstPass, Given, Reading, model_observed, with_record
from modifind.engine.record import recorded_settings
from modifind.engine.settings import (
    ConditionalRandomizationTest,
    RunSettings,
    Statistic,
    agreeing_sampler,
    called,
    resolve_propensity,
    resolve_statistic,
    resolve_test,
)
from modifind.nuisance.conditional import BaseSampler
from modifind.nuisance.propensity.scores import PropensityModel
from modifind.result.concerns import warn_of
from modifind.result.placebo_result import PlaceboResult
from modifind.result.selection_result import SelectionResult

# Settings that a run takes as they are.
PLAIN = (
    *("n_resamples", "alpha", "adjust", "outcome_transform", "n_jobs", "progress", "explain", "population"),
    *("outcome", "effect_scale", "design"),
)


class FitResult(NamedTuple):
    """Names of all columns, the result, and whether Ctrl-C ended the fit early."""

    columns: tuple[str, ...]
    result: SelectionResult
    interrupted: bool


@dataclass(frozen=True)
class Job:
    """A run of a selector on a two-arm table: validated settings, and the steps from table to result.

    Attributes
    ----------
    params : dict
        Arguments of the selector.
    statistic, sampler, propensity, test : objects
        Made from these arguments, in agreement with each other.
    seed : int
        The seed.
    """

    params: dict[str, Any]
    statistic: Statistic
    sampler: BaseSampler
    propensity: PropensityModel
    test: ConditionalRandomizationTest
    seed: int

    @classmethod
    @contextmanager
    def locked(cls, params: dict[str, Any]) -> Iterator[Job]:
        """Make a job from validated settings, with the checkpoint folder locked."""
        with locked_folder(params["checkpoint"]), memory_advice():
            yield cls.of(params)

    @classmethod
    def of(cls, params: dict[str, Any]) -> Job:
        """Make a job from validated settings."""
        statistic = resolve_statistic(params["statistic"], params["device"])
        return cls(
            params,
            statistic,
            sampler=agreeing_sampler(params["sampler"], statistic, params["device"]),
            propensity=resolve_propensity(params["propensity"]),
            test=resolve_test(params["test"], params["adjust"]),
            seed=seed_of(params["random_state"], params["checkpoint"]),
        )

    def fit(self, given: Given) -> FitResult:
        """Test every feature."""
        reading, checkpoint, notes = self._reading(given), UNSAVED, list[str]()
        known: dict[int, Any] = {}
        with self._opened(given) as opened:
            with recorded() as before:
                saved = continued_pass(self.params, self.statistic, self.test, given, self.seed)
                pieces, first_pass = self._look(reading, opened, saved)
                data, run = self._read(reading, first_pass)
            if first_pass.whole:
                # Warnings about the folder or the machine are not part of the result, which is that of any other.
                with collected() as notes:
                    checkpoint, known = continued_tests(self.params, data, run, self.seed)
                self._warn_of_memory(data, run)
            with recorded(before) as after:
                found = fit_table(run, PreparedTable.of(run, data, pieces), checkpoint, known)
        for note in (*notes, *saved.notes):
            warn(note)
        result = self._result(found, run, first_pass.dropped, tuple(dict.fromkeys([*before, *after])))
        n_placebos, interrupted = self.params["placebo_runs"], found.interrupted
        if n_placebos and not interrupted:
            placebos = partial(_run_placebos, reading, first_pass, run, checkpoint)
            result, interrupted = _with_placebos(result, placebos, n_placebos)
        return FitResult(found.columns_in, result, interrupted)

    def placebo(self, given: Given, n: int) -> tuple[PlaceboResult, bool]:
        """Placebo runs only, and whether Ctrl-C ended them early.

        For a longer table they use the rows that its models would be fitted to.
        """
        reading = self._reading(given)
        with self._opened(given) as opened:
            first_pass = self._look(reading, opened, NullCheckpoint())[1]
        data, run = self._read(reading, _at_hand(reading, first_pass))
        check_settings(run, data)
        checkpoint, _ = continued_tests(self.params, data, run, self.seed)
        return _run_placebos(reading, first_pass, run, checkpoint, n)

    def checked(self, given: Given, *, weigh: bool = True) -> tuple[Data, RunSettings]:
        """Validate a table in memory and return it with the settings of its run.

        `weigh` says whether to weight rows for those with a missing outcome, which requires models of missingness.
        """
        reading, source = self._reading(given), given.source(self.params["propensity"])
        if self.statistic.in_pieces and source.n_rows > self.params["max_train_rows"]:
            self.statistic.check_in_pieces()
        pieces = self._local(source.at_once, RowFilter(reading.kept, given.arms), whole=True)
        data, run = self._read(reading, self._look(reading, pieces, NullCheckpoint(), weigh=weigh)[1])
        check_settings(run, data)
        return data, run

    def _read(self, reading: Reading, first_pass: FirstPass) -> tuple[Data, RunSettings]:
        """The encoded table, and the settings of the run."""
        if not first_pass.whole:
            self._refuse_in_pieces()
        params, columns = self.params, tuple(map(str, first_pass.sample.X.columns))
        run = RunSettings(
            statistic=self.statistic,
            sampler=self.sampler,
            propensity=self.propensity,
            test=self.test,
            feature_groups=read_feature_groups(params["feature_groups"], columns),
            n_folds=params["cv"],
            seed=self.seed,
            **{name: params[name] for name in PLAIN},
        )
        data = read_for(run, reading, first_pass)
        refuse_later_columns(run, data)
        self._warn_unused()
        return data, run

    def _reading(self, given: Given) -> Reading:
        settings = {name: self.params[name] for name in ("discrete_features", "missing", "missing_outcome")}
        return Reading(**settings, treated=given.treated, adjust_for=given.adjust_for, named=given.named)

    @contextmanager
    def _opened(self, given: Given) -> Iterator[TablePieces]:
        """Pieces of a table: one for a frame in memory, several for a long one, or the partitions of a cluster."""
        kept = RowFilter(self._reading(given).kept, given.arms)
        propensity, n_jobs = self.params["propensity"], self.params["n_jobs"]
        if is_distributed(given.X):
            from modifind.engine.dask import DaskPieces

            table = given.X, given.y, given.treatment
            with DaskPieces.of(*table, propensity, n_jobs, kept=kept, per_row=given.per_row) as pieces:
                yield pieces
        elif is_source(given.X):
            if row_scores(propensity) is not None and "propensity" not in getattr(given.X, "more", ()):
                raise ValueError("propensity is one score per row; the scores of a source must come with it")
            yield self._local(given.X, kept)
        else:
            source = given.source(propensity)
            long = self.statistic.in_pieces and source.n_rows > self.params["max_train_rows"]
            yield self._local(source if long else source.at_once, kept, whole=not long)

    def _local(self, source: Source, kept: RowFilter, *, whole: bool = False) -> LocalPieces:
        some = kept != ALL_ROWS or "sample_weight" in getattr(source, "more", ())
        return LocalPieces(FilteredRows(source, kept) if some else source, self.params["n_jobs"], whole=whole)

    def _look(
        self, reading: Reading, pieces: Any, checkpoint: NullCheckpoint, *, weigh: bool = True
    ) -> tuple[Any, FirstPass]:
        """First pass over the rows; if outcomes are missing, keep and weight the rows that have one.

        Sums over a longer table are saved in `checkpoint`. For a table in memory no pieces are returned.
        """
        by_weight = self.params["missing_outcome"] == "weight"
        saving = replace(pieces, checkpoint=checkpoint)
        first_pass = self._sampled(reading, pieces if by_weight else saving)
        first_pass.dropped.warn()
        if by_weight and first_pass.summary.y.n_missing:
            rule, unseen = model_observed(reading, first_pass, self.params["cv"], self.seed, fit=weigh)
            sampled, dropped = first_pass.summary.weights is not None, first_pass.dropped
            if first_pass.whole:
                first_pass = reading.at_once(rule(first_pass.sample), dropped)
            else:
                saving = saving.observed(rule)
                first_pass = replace(self._sampled(reading, saving), dropped=dropped)
            first_pass = with_record(first_pass, unseen, sampled=sampled)
        elif by_weight and not first_pass.whole:
            first_pass = self._sampled(reading, saving)
        return None if first_pass.whole else saving, first_pass

    def _sampled(self, reading: Reading, pieces: Any) -> FirstPass:
        """Summarise all rows; keep all of a table in memory or a short one, otherwise a sample."""
        n_sample, statistic = self.params["max_train_rows"], self.statistic
        statistic.check()
        self.propensity.check()
        rows = RowPlan.of(seed_stream(self.seed, "folds", whole=False), self.params["cv"], statistic.cv_repeats or 1)
        whole = getattr(pieces, "whole", False)
        sums, rows = pieces.look(rows, reading.discrete_features, sys.maxsize if whole else n_sample)
        numbers, sample = sums.sample()
        if sums.summary.n_rows <= n_sample and not whole:
            return reading.at_once(sample, pieces.dropped)
        return FirstPass(sums.summary, sample, numbers, None if whole else rows, pieces.dropped)

    def _refuse_in_pieces(self) -> None:
        """Refuse settings that need all rows in memory, for a table processed in pieces."""
        if not self.statistic.in_pieces:
            raise ValueError(
                "a table in pieces is tested by statistic='effect_likelihood' or 'wcmmd', which are sums over rows; "
                f"{called(self.statistic)} needs the table in memory"
            )
        self.statistic.check_in_pieces()

    def _warn_of_memory(self, data: Data, run: RunSettings) -> None:
        if not run.max_resamples(len(data.units)):
            warn_of_memory(*data.first_pass.sample.X.shape, effective_n_jobs(run.n_jobs))

    def _warn_unused(self) -> None:
        """Warn of settings that a test without resampling ignores."""
        if self.statistic.resamples:
            return
        test, n_resamples, *judged = (self.params[name] for name in ("test", "n_resamples", "alpha", "adjust"))
        if test is not None:
            warn("test= belongs to 'wcmmd'; effect_likelihood does not use it")
        if n_resamples != "auto":
            ConditionalRandomizationTest().resolve_resamples(n_resamples, 1, *judged)  # refuses what is no count
            warn(
                "effect_likelihood does not resample, so n_resamples has no effect; "
                "EffectLikelihood(check_resamples=...) checks its tail by resampling",
            )

    def _result(
        self, found: TableFindings, run: RunSettings, dropped: DroppedRows, messages: tuple[str, ...]
    ) -> SelectionResult:
        """Assemble the result and warn of failed checks not covered by an earlier warning."""
        params = self.params
        settings = {
            **recorded_settings(params, self.statistic, run.sampler, self.test),
            **found.settings,
            **(dropped.settings() if "drop" in (params["missing"], params["missing_outcome"]) else {}),
            **({"n_rows_other_arms": dropped.n_other_arms} if dropped.n_other_arms else {}),
        }
        result = assemble(found, settings, messages, params["alpha"], params["adjust"])
        warn_of(result.checks, found.warned_of)
        return result


def _at_hand(reading: Reading, first_pass: FirstPass) -> FirstPass:
    """The rows at hand as a table of their own."""
    return first_pass if first_pass.whole else reading.at_once(first_pass.sample)


def _run_placebos(
    reading: Reading, first_pass: FirstPass, run: RunSettings, checkpoint: Checkpoint, n: int
) -> tuple[PlaceboResult, bool]:
    """Placebo runs of a table, or of the rows that the models of a longer one are fitted to."""
    result, interrupted = run_placebos(run, reading, _at_hand(reading, first_pass), n, checkpoint)
    if not first_pass.whole:
        result = replace(result, drawn=f"{result.drawn} in a sample of {first_pass.numbers.size} rows")
    return result, interrupted


def _with_placebos(
    result: SelectionResult, placebos: Callable[[int], tuple[PlaceboResult, bool]], n: int
) -> tuple[SelectionResult, bool]:
    """Add placebo runs to a result, which is kept even if they fail."""
    try:
        placebo, interrupted = placebos(n)
    except KeyboardInterrupt:
        return result, True
    except ValueError as error:
        message = f"no placebo treatment could be analysed: {error}"
        warn(message)
        return replace(result, warnings=(*result.warnings, message)), False
    if placebo.warning:
        warn(placebo.warning)
        result = replace(result, warnings=(*result.warnings, placebo.warning))
    return replace(result, placebo=placebo if placebo.n_runs else None), interrupted
