"""One analysis of one table, from what the user passed to the result: opened, read, tested and put on record."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from joblib import effective_n_jobs

from modifind._memory import warn_of_memory
from modifind.data.containers import as_frame, is_distributed
from modifind.data.feature_groups import read_feature_groups, refuse_adjusted
from modifind.data.missing import Dropped
from modifind.data.sources import (
    ALL_ROWS,
    FrameSource,
    Kept,
    KeptRows,
    Piece,
    Source,
    files_of,
    has_row_scores,
    is_files,
)
from modifind.engine.assemble import assemble
from modifind.engine.checkpoint import Checkpoint
from modifind.engine.in_memory import TableInMemory, check_settings
from modifind.engine.parts import (
    ConditionalRandomizationTest,
    Statistic,
    agreeing_sampler,
    called,
    recorded_settings,
    refuse_clusters,
    resolve_propensity,
    with_row_scores,
)
from modifind.engine.passes import LocalPieces, Pieces
from modifind.engine.piece_reading import Looked, PieceReading
from modifind.engine.placebo import run_placebos
from modifind.engine.reading import Data, Given, Reading
from modifind.engine.record import distinct_messages, recorded, with_messages
from modifind.engine.resuming import continued_pass, continued_tests
from modifind.engine.run import Run
from modifind.engine.units import Tested
from modifind.engine.weighing import weigh_pieces
from modifind.result.checks import warn_of
from modifind.result.placebo_result import PlaceboResult
from modifind.result.selection_result import SelectionResult

Keep: TypeAlias = Callable[[tuple[str, ...], SelectionResult], None]
# Settings that a run takes as they are.
PLAIN = (
    *("n_resamples", "alpha", "adjust", "outcome_transform", "n_jobs", "progress", "explain", "population"),
    *("outcome", "effect_scale"),
)


@dataclass(frozen=True)
class Job:
    """What a selector does with a table.

    Attributes
    ----------
    params : dict
        Arguments of the selector.
    statistic, test : objects
        As they are used.
    seed : int
        The seed.
    keep : callable
        Takes the names of all columns and the result, as soon as there is one.
    """

    params: dict[str, Any]
    statistic: Statistic
    test: ConditionalRandomizationTest
    seed: int
    keep: Keep

    def fit(self, given: Given) -> bool:
        """Test every feature; whether Ctrl-C came before the end."""
        if not self.in_pieces(given):
            return self._fit_kept(given)
        with self._pieces(given) as pieces:
            return self._fit_pieces(pieces, given)

    def fit_source(self, given: Given) -> bool:
        """The same for rows that come from a source, which is X."""
        self._check_scores(given.X)
        return self._fit_pieces(self._local(given.X, given.arms), given)

    def placebo(self, given: Given, n: int) -> tuple[PlaceboResult, bool]:
        """Placebo runs alone, of a table in pieces with the rows that its models would be fitted to."""
        if not self.in_pieces(given):
            data, run = self.checked(given)
            return run_placebos(run, data, n, self._continued(data, run)[0])
        with self._pieces(given) as pieces:
            return self._sampled_placebo(self._reading(given).look(self._run(), pieces), given, n, save=True)

    def placebo_source(self, given: Given, n: int) -> tuple[PlaceboResult, bool]:
        """The same for rows that come from a source, which is X."""
        self._check_scores(given.X)
        looked = self._reading(given).look(self._run(), self._local(given.X, given.arms))
        return self._sampled_placebo(looked, given, n, save=True)

    def in_pieces(self, given: Given) -> bool:
        """Whether a table is processed in pieces; refuses what needs all rows at once if it is a long frame."""
        if is_distributed(given.X) or is_files(given.X):
            return True
        if not self.statistic.in_pieces or len(given.X) <= self.params["max_train_rows"]:
            return False
        self._refuse_in_pieces()
        return True

    def read(self, given: Given, *, weigh: bool = True) -> tuple[Data, Run]:
        """A table in memory, checked and encoded, and what is to be done with it.

        `weigh` is whether rows are weighted for those without an outcome, which takes models of who has one.
        """
        if given.clusters is not None:
            refuse_clusters(self.statistic)
        own = self.params
        reading = Reading(own["discrete_features"], own["missing"], own["missing_outcome"], own["cv"], self.seed, weigh)
        data = reading.read(given)
        run = self._run(data.table.names)
        refuse_adjusted(run.feature_groups, data.adjusted)
        self._warn_unused()
        return data, run

    def checked(self, given: Given, *, weigh: bool = True) -> tuple[Data, Run]:
        """The same, with settings that have no meaning for the table refused."""
        data, run = self.read(given, weigh=weigh)
        check_settings(run, data)
        return data, run

    def _run(self, names: tuple[str, ...] | None = None) -> Run:
        """What is to be done; groups of columns are checked where the names of all columns are known."""
        own = self.params
        return Run(
            statistic=self.statistic,
            sampler=agreeing_sampler(own["sampler"], self.statistic, own["device"]),
            propensity=resolve_propensity(own["propensity"]),
            test=self.test,
            feature_groups={} if names is None else read_feature_groups(own["feature_groups"], names),
            n_folds=own["cv"],
            seed=self.seed,
            **{name: own[name] for name in PLAIN},
        )

    def _fit_kept(self, given: Given, left_out: Dropped | None = None) -> bool:
        """Test every feature with all rows at once; `left_out` are those that were not even read."""
        if not self.statistic.resamples:
            n_rows, n_features = given.X.shape
            # Of this machine, so not recorded.
            warn_of_memory(n_rows, n_features, effective_n_jobs(self.params["n_jobs"]))
        with recorded() as caught:
            data, run = self.read(given)
            # What is said of the folder is not part of the result, which is that of a run without one.
            saved, notes = with_messages(self._continued, data, run)
            found = run.fit(TableInMemory.of(run, data, *saved))
        dropped, told = (data.dropped, ()) if left_out is None else (left_out, with_messages(left_out.warn)[1])
        known = found, run, dropped, (*told, *distinct_messages(caught)), notes
        return self._concluded(*known, lambda n: run_placebos(run, data, n, saved[0]))

    def _fit_pieces(self, pieces: Any, given: Given) -> bool:
        """Test every feature by sums over pieces of the table; one of few rows is taken at once."""
        run, reading, saved = self._run(), self._reading(given), None
        if self.params["checkpoint"] is not None:
            saved = continued_pass(self.params, self.statistic, self.test, given.treated, given.adjust_for, self.seed)
        with recorded() as caught:
            self._warn_unused()
            everything, (pieces, looked, record) = pieces, self._looked(run, reading, pieces, saved)
            few = looked.summary.n_rows <= self.params["max_train_rows"] and record is None
            if few:
                caught.clear()  # what follows says it again
            else:
                self._refuse_in_pieces()
                run = self._run(tuple(map(str, looked.sample.X.columns)))
                found = run.fit(reading.read(run, pieces, looked))
                everything.dropped.warn()
        if few:
            return self._fit_few(looked.sample, pieces.dropped, given)
        if record is not None:
            settings = {name: value for name, value in found.settings.items() if name != "sample_weight"}
            found = replace(found, settings=settings | {"outcome_weights": record(looked.summary.weights)})
        known = found, run, everything.dropped, distinct_messages(caught), saved.notes if saved is not None else ()
        return self._concluded(*known, lambda n: self._sampled_placebo(looked, given, n))

    def _looked(self, run: Run, reading: PieceReading, pieces: Any, saved: Any) -> tuple[Any, Looked, Any]:
        """The pieces whose rows are tested, and what they hold.

        Where these rows stand for others that have no outcome, the last is what a result records of their weights.
        """
        record = None
        if self.params["missing_outcome"] == "weight":
            looked = reading.look(run, pieces)
            if looked.summary.n_rows <= self.params["max_train_rows"]:
                return pieces, looked, None
            if looked.summary.y.n_missing:
                pieces, record = weigh_pieces(pieces, looked, reading.treated, reading.missing, self.seed)
        pieces = pieces if saved is None else replace(pieces, checkpoint=saved)
        return pieces, reading.look(run, pieces), record

    def _fit_few(self, piece: Piece, dropped: Dropped, given: Given) -> bool:
        """Test a table in pieces that has few enough rows for all to be kept."""
        job, rows = self._of_piece(piece, given)
        try:
            return job._fit_kept(rows, dropped)
        finally:
            dropped.warn()  # also where something is refused for want of the rows that were left out

    def _of_piece(self, piece: Piece, given: Given, **changed: Any) -> tuple[Job, Given]:
        """Some rows of a table in pieces as a table in memory."""
        params, per_row = self.params | changed, piece.more
        if "propensity" in per_row:
            params["propensity"] = with_row_scores(params["propensity"], per_row.pop("propensity").to_numpy())
        rows = Given(as_frame(piece.X), piece.y, piece.treatment, given.treated, given.adjust_for, **per_row)
        return replace(self, params=params), rows

    def _sampled_placebo(
        self, looked: Looked, given: Given, n: int, *, save: bool = False
    ) -> tuple[PlaceboResult, bool]:
        """Placebo runs of the rows that models of a table in pieces are fitted to."""
        job, rows = self._of_piece(looked.sample, given)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # the fit itself has said it
            data, run = job.checked(rows)
        placebo, interrupted = run_placebos(run, data, n, job._continued(data, run)[0] if save else None)
        if looked.summary.n_rows > looked.numbers.size:
            placebo = replace(placebo, drawn=f"{placebo.drawn} in a sample of {looked.numbers.size} rows")
        return placebo, interrupted

    def _reading(self, given: Given) -> PieceReading:
        own = self.params
        ways = own["discrete_features"], own["missing"], own["max_train_rows"]
        return PieceReading(*ways, given.treated, given.adjust_for)

    @contextmanager
    def _pieces(self, given: Given) -> Iterator[Pieces]:
        """The pieces of a table that is processed in pieces: a long frame, files, or partitions on a cluster."""
        table = given.X, given.y, given.treatment
        if not is_distributed(given.X):
            if is_files(given.X):
                source: Source = files_of(given.X, {"y": given.y, "treatment": given.treatment, **given.per_row})
                self._check_scores(source)
            else:
                source = FrameSource.of(*table, self.params["propensity"], given.per_row)
            yield self._local(source, given.arms)
            return
        from modifind.engine.dask import DaskPieces

        own = (self.params["propensity"], self.params["n_jobs"])
        with DaskPieces.of(*table, *own, kept=self._kept(given.arms), per_row=given.per_row) as pieces:
            yield pieces

    def _local(self, source: Source, arms: Any) -> LocalPieces:
        kept = self._kept(arms)
        some = kept != ALL_ROWS or "sample_weight" in getattr(source, "more", ())
        return LocalPieces(KeptRows(source, kept) if some else source, self.params["n_jobs"])

    def _kept(self, arms: Any) -> Kept:
        """Which rows of a table in pieces are kept: those of the arms that have what they must have a value of."""
        complete = "outcomes" if self.params["missing_outcome"] == "drop" else ""
        if self.params["missing"] == "drop":
            complete = "inputs" if self.params["missing_outcome"] == "weight" else "rows"
        return Kept(complete, arms)

    def _check_scores(self, source: Source) -> None:
        if has_row_scores(self.params["propensity"]) and "propensity" not in getattr(source, "more", ()):
            raise ValueError("propensity is one score per row; the scores of a source must come with it")

    def _refuse_in_pieces(self) -> None:
        """Refuse what needs all rows at once, for a table that has too many for that."""
        if not self.statistic.in_pieces:
            raise ValueError(
                "a table in pieces is tested by statistic='effect_likelihood' or 'wcmmd', which are sums over rows; "
                f"{called(self.statistic)} needs the table in memory"
            )
        self.statistic.check_in_pieces()

    def _warn_unused(self) -> None:
        """Name settings that the effect-likelihood test has no use for."""
        if self.statistic.resamples:
            return
        test, n_resamples, *judged = (self.params[name] for name in ("test", "n_resamples", "alpha", "adjust"))
        if test is not None:
            warnings.warn("test= belongs to 'wcmmd'; effect_likelihood does not use it", UserWarning, stacklevel=4)
        if n_resamples != "auto":
            ConditionalRandomizationTest().resolve_resamples(n_resamples, 1, *judged)  # refuses what is no count
            warnings.warn(
                "effect_likelihood does not resample, so n_resamples has no effect; "
                "EffectLikelihood(check_resamples=...) checks its tail by resampling",
                UserWarning,
                stacklevel=4,
            )

    def _continued(self, data: Data, run: Run) -> tuple[Checkpoint | None, dict[int, Any]]:
        return continued_tests(self.params, data, run.feature_groups, self.statistic, self.test, self.seed)

    def _concluded(
        self,
        found: Tested,
        run: Run,
        dropped: Dropped,
        messages: tuple[str, ...],
        notes: Sequence[str],
        placebos: Callable[[int], tuple[PlaceboResult, bool]],
    ) -> bool:
        """Keep the result, warn of what its checks found and no warning has said, and add placebo runs to it.

        Returns whether Ctrl-C came before the end.
        """
        for note in notes:
            warnings.warn(note, UserWarning, stacklevel=4)
        own = self.params
        settings = {
            **recorded_settings(own, self.statistic, run.sampler, self.test),
            **found.settings,
            **(dropped.settings() if "drop" in (own["missing"], own["missing_outcome"]) else {}),
            **({"n_rows_other_arms": dropped.n_other_arms} if dropped.n_other_arms else {}),
        }
        result = assemble(found, settings, messages, own["alpha"], own["adjust"])
        warn_of(result.checks, found.named)
        self.keep(found.columns_in, result)
        if found.interrupted or not own["placebo_runs"]:
            return found.interrupted
        placebo, interrupted = placebos(own["placebo_runs"])
        if placebo.warning:
            warnings.warn(placebo.warning, UserWarning, stacklevel=4)
            result = replace(result, warnings=(*result.warnings, placebo.warning))
        self.keep(found.columns_in, replace(result, placebo=placebo if placebo.n_runs else None))
        return interrupted
