"""One analysis of two arms of a table, from what the user passed to the result: opened, read, tested, on record."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from joblib import effective_n_jobs

from modifind._memory import remedies_told, warn_of_memory
from modifind._warned import warn
from modifind.data.containers import is_distributed, row_scores
from modifind.data.feature_groups import read_feature_groups
from modifind.data.missing import Dropped
from modifind.data.row_plan import RowPlan
from modifind.data.sources import ALL_ROWS, Kept, KeptRows, Source, is_source
from modifind.engine.assemble import assemble
from modifind.engine.checkpoint import Checkpoint
from modifind.engine.fitting import fit_table
from modifind.engine.lock import held
from modifind.engine.parts import (
    ConditionalRandomizationTest,
    Statistic,
    agreeing_sampler,
    called,
    recorded_settings,
    resolve_propensity,
    resolve_statistic,
    resolve_test,
)
from modifind.engine.passes import LocalPieces, Pieces
from modifind.engine.placebo import run_placebos
from modifind.engine.reading import Data, Given, Looked, Reading
from modifind.engine.record import distinct_messages, recorded, with_messages
from modifind.engine.resuming import continued_pass, continued_tests, seed_of
from modifind.engine.run import Run
from modifind.engine.table import Table, check_settings, read_for, refuse_later_columns, stream
from modifind.engine.units import Tested
from modifind.engine.weighing import model_observed, with_record
from modifind.result.concerns import warn_of
from modifind.result.placebo_result import PlaceboResult
from modifind.result.selection_result import SelectionResult

# Settings that a run takes as they are.
PLAIN = (
    *("n_resamples", "alpha", "adjust", "outcome_transform", "n_jobs", "progress", "explain", "population"),
    *("outcome", "effect_scale", "design"),
)


class Fitted(NamedTuple):
    """Names of all columns, the result, and whether Ctrl-C came before the end."""

    columns: tuple[str, ...]
    result: SelectionResult
    interrupted: bool


@dataclass(frozen=True)
class Job:
    """What a selector does with a table of two arms.

    Attributes
    ----------
    params : dict
        Arguments of the selector.
    statistic, test : objects
        As they are used.
    seed : int
        The seed.
    """

    params: dict[str, Any]
    statistic: Statistic
    test: ConditionalRandomizationTest
    seed: int

    @classmethod
    @contextmanager
    def locked(cls, params: dict[str, Any]) -> Iterator[Job]:
        """By settings that have been checked, with the folder of its checkpoint to itself."""
        with held(params["checkpoint"]), remedies_told():
            yield cls.of(params)

    @classmethod
    def of(cls, params: dict[str, Any]) -> Job:
        """By settings that have been checked."""
        statistic = resolve_statistic(params["statistic"], params["device"])
        seed = seed_of(params["random_state"], params["checkpoint"])
        return cls(params, statistic, resolve_test(params["test"], params["adjust"]), seed)

    def fit(self, given: Given) -> Fitted:
        """Test every feature."""
        reading = self._reading(given)
        checkpoint: Checkpoint | None = None
        known: dict[int, Any] = {}
        notes: tuple[str, ...] = ()
        with self._opened(given) as opened:
            with recorded() as first:
                saved = continued_pass(self.params, self.statistic, self.test, given, self.seed)
                pieces, looked = self._look(reading, opened, saved)
                data, run = self._read(reading, looked)
            if looked.whole:
                # What is said of the folder or the machine is not part of the result, which is that of any other.
                (checkpoint, known), notes = with_messages(self._continued, data, run)
                self._warn_of_memory(data, run)
            with recorded(first) as then:
                found = fit_table(run, Table.of(run, data, pieces), checkpoint, known)
        messages = tuple(dict.fromkeys((*distinct_messages(first), *distinct_messages(then))))
        notes = notes if saved is None else (*notes, *saved.notes)
        placebos = partial(self._run_placebos, reading, looked, run, checkpoint)
        return self._concluded(found, run, looked.dropped, messages, notes, placebos)

    def placebo(self, given: Given, n: int) -> tuple[PlaceboResult, bool]:
        """Placebo runs alone, of a longer table with the rows that its models would be fitted to.

        The second is whether Ctrl-C came before the end.
        """
        reading = self._reading(given)
        with self._opened(given) as opened:
            looked = self._look(reading, opened)[1]
        data, run = self._read(reading, _at_hand(reading, looked))
        check_settings(run, data)
        return self._run_placebos(reading, looked, run, self._continued(data, run)[0], n)

    def checked(self, given: Given, *, weigh: bool = True) -> tuple[Data, Run]:
        """A table in memory as it is read, and what is to be done with it; refuses settings that have no meaning there.

        `weigh` is whether rows are weighted for those without an outcome, which takes models of who has one.
        """
        reading, source = self._reading(given), given.source(self.params["propensity"])
        if self.statistic.in_pieces and source.n_rows > self.params["max_train_rows"]:
            self.statistic.check_in_pieces()
        pieces = self._local(source.at_once, Kept(reading.kept, given.arms), whole=True)
        data, run = self._read(reading, self._look(reading, pieces, weigh=weigh)[1])
        check_settings(run, data)
        return data, run

    def _read(self, reading: Reading, looked: Looked) -> tuple[Data, Run]:
        run = self._run(tuple(map(str, looked.sample.X.columns)))
        if not looked.whole:
            self._refuse_in_pieces()
        data = read_for(run, reading, looked)
        refuse_later_columns(run, data)
        self._warn_unused()
        return data, run

    def _run(self, names: tuple[str, ...] = ()) -> Run:
        """What is to be done; groups of columns are checked where the names of all columns are known."""
        own = self.params
        return Run(
            statistic=self.statistic,
            sampler=agreeing_sampler(own["sampler"], self.statistic, own["device"]),
            propensity=resolve_propensity(own["propensity"]),
            test=self.test,
            feature_groups=read_feature_groups(own["feature_groups"], names) if names else {},
            n_folds=own["cv"],
            seed=self.seed,
            **{name: own[name] for name in PLAIN},
        )

    def _reading(self, given: Given) -> Reading:
        ways = {name: self.params[name] for name in ("discrete_features", "missing", "missing_outcome")}
        return Reading(**ways, treated=given.treated, adjust_for=given.adjust_for, named=given.named)

    @contextmanager
    def _opened(self, given: Given) -> Iterator[Pieces]:
        """The pieces of a table: one of a frame in memory, several of a long one or a source, or a cluster's."""
        kept = Kept(self._reading(given).kept, given.arms)
        propensity, n_jobs = self.params["propensity"], self.params["n_jobs"]
        if is_distributed(given.X):
            from modifind.engine.dask import DaskPieces

            table = given.X, given.y, given.treatment
            with DaskPieces.of(*table, propensity, n_jobs, kept=kept, per_row=given.per_row) as pieces:
                yield pieces
            return
        if is_source(given.X):
            if row_scores(propensity) is not None and "propensity" not in getattr(given.X, "more", ()):
                raise ValueError("propensity is one score per row; the scores of a source must come with it")
            yield self._local(given.X, kept)
            return
        source = given.source(propensity)
        long = self.statistic.in_pieces and source.n_rows > self.params["max_train_rows"]
        yield self._local(source if long else source.at_once, kept, whole=not long)

    def _local(self, source: Source, kept: Kept, *, whole: bool = False) -> LocalPieces:
        some = kept != ALL_ROWS or "sample_weight" in getattr(source, "more", ())
        return LocalPieces(KeptRows(source, kept) if some else source, self.params["n_jobs"], whole=whole)

    def _look(self, reading: Reading, pieces: Any, saved: Any = None, *, weigh: bool = True) -> tuple[Any, Looked]:
        """Look at the rows; where some have no outcome, those that are to stand for them are left.

        `saved` is where sums over a longer table are kept. Of a table in memory no pieces are left.
        """
        by_weight = self.params["missing_outcome"] == "weight"
        saving = pieces if saved is None else replace(pieces, checkpoint=saved)
        looked = self._sampled(reading, pieces if by_weight else saving)
        looked.dropped.warn()
        if by_weight and looked.summary.y.n_missing:
            rule, unseen = model_observed(reading, looked, self.params["cv"], self.seed, fit=weigh)
            sampled, dropped = looked.summary.weights is not None, looked.dropped
            if looked.whole:
                looked = reading.at_once(rule(looked.sample), dropped)
            else:
                saving = saving.observed(rule)
                looked = replace(self._sampled(reading, saving), dropped=dropped)
            looked = with_record(looked, unseen, sampled=sampled)
        elif by_weight and not looked.whole:
            looked = self._sampled(reading, saving)
        return None if looked.whole else saving, looked

    def _sampled(self, reading: Reading, pieces: Any) -> Looked:
        """Look at all rows once; those of a table in memory, or of a few, are all kept, and a sample of more."""
        run, n_sample = self._run(), self.params["max_train_rows"]
        run.statistic.check()
        run.propensity.check()
        rows = RowPlan.of(stream(run, "folds", whole=False), run.n_folds, run.statistic.cv_repeats or 1)
        whole = getattr(pieces, "whole", False)
        look, rows = pieces.look(rows, reading.discrete_features, sys.maxsize if whole else n_sample)
        numbers, sample = look.sample()
        if whole:
            return Looked(look.summary, sample, numbers, None, pieces.dropped)
        if look.summary.n_rows <= n_sample:
            return reading.at_once(sample, pieces.dropped)
        return Looked(look.summary, sample, numbers, rows, pieces.dropped)

    def _refuse_in_pieces(self) -> None:
        """Refuse what needs all rows at once, for a table that has too many for that."""
        if not self.statistic.in_pieces:
            raise ValueError(
                "a table in pieces is tested by statistic='effect_likelihood' or 'wcmmd', which are sums over rows; "
                f"{called(self.statistic)} needs the table in memory"
            )
        self.statistic.check_in_pieces()

    def _warn_of_memory(self, data: Data, run: Run) -> None:
        if not run.max_resamples(len(data.units)):
            shape = data.looked.sample.X.shape
            warn_of_memory(*shape, effective_n_jobs(run.n_jobs))

    def _warn_unused(self) -> None:
        """Name settings that a test without resamples has no use for."""
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

    def _continued(self, data: Data, run: Run) -> tuple[Checkpoint | None, dict[int, Any]]:
        return continued_tests(self.params, data, run, self.seed)

    def _run_placebos(
        self, reading: Reading, looked: Looked, run: Run, checkpoint: Checkpoint | None, n: int
    ) -> tuple[PlaceboResult, bool]:
        """Placebo runs of a table, or of the rows that the models of a longer one are fitted to."""
        found, interrupted = run_placebos(run, reading, _at_hand(reading, looked), n, checkpoint)
        if not looked.whole:
            found = replace(found, drawn=f"{found.drawn} in a sample of {looked.numbers.size} rows")
        return found, interrupted

    def _concluded(
        self,
        found: Tested,
        run: Run,
        dropped: Dropped,
        messages: tuple[str, ...],
        notes: Sequence[str],
        placebos: Callable[[int], tuple[PlaceboResult, bool]],
    ) -> Fitted:
        """The result, once it has been warned of what its checks found and no warning has said; with placebo runs."""
        for note in notes:
            warn(note)
        own = self.params
        settings = {
            **recorded_settings(own, self.statistic, run.sampler, self.test),
            **found.settings,
            **(dropped.settings() if "drop" in (own["missing"], own["missing_outcome"]) else {}),
            **({"n_rows_other_arms": dropped.n_other_arms} if dropped.n_other_arms else {}),
        }
        result = assemble(found, settings, messages, own["alpha"], own["adjust"])
        warn_of(result.checks, found.named)
        interrupted = found.interrupted
        if own["placebo_runs"] and not interrupted:
            result, interrupted = _with_placebos(result, placebos, own["placebo_runs"])
        return Fitted(found.columns_in, result, interrupted)


def _at_hand(reading: Reading, looked: Looked) -> Looked:
    """The rows at hand as a table of their own."""
    return looked if looked.whole else reading.at_once(looked.sample)


def _with_placebos(
    result: SelectionResult, placebos: Callable[[int], tuple[PlaceboResult, bool]], n: int
) -> tuple[SelectionResult, bool]:
    """A result with what placebo runs found; it is not lost with them."""
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
