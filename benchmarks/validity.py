"""Power and type I error of the tests on tables with a known truth; the tables of docs/validity.md.

    python benchmarks/validity.py                                # every table, 50 runs each, development seeds
    python benchmarks/validity.py --tables power null --seed 1000 --runs 50

prints Markdown. Tables: `power` (the paper's data), `prognostic` (the same with five prognostic features), `shapes`
(other kinds of modifiers, beside "wcmmd"), `null`, `sizes` (n = 500 and 2000), `curve` (power against effect size),
`roles` (which features are called modifiers, and which prognostic), `repeats` (how far p moves with the folds),
`groups` (columns tested as one, n = 800), `pair` (two columns that say nearly the same, alone and as a group),
`streamed`, `streamed_groups` and `streamed_wcmmd` (null designs with --n rows, of which models see --train-rows; the
last has --null-p-values of each), `mess` (survey weights, clusters, strata, missing values and rare levels, with and
without what tells the test of them), `placebo` (coin flips in place of the treatment of real tables, which are read
from the folder named by $MODIFIND_DATA), `zero` (no effect, and noise that is not Student-t), `unfollowed` (prognostic
functions that learners hardly follow, with --sizes rows), `one_arm` (the spread of one arm changes), `tails` (rare
events and skewness of the treated), `noise` (no effect, and noise that is no normal variable), `levels` (a category of
many levels: raw p-values of the category and of the others, n = 5000, and CPU time with and without it, n = 20,000),
`checks` (how often good and bad tables pass the checks that bear on validity), `per_cluster` (features that have one
value in every cluster), `covariates` (null outcomes of real features, from the folder named by $MODIFIND_DATA),
`related` (a null column that is a function of modifiers plus noise), `assigned` (treatment by a rule that no line
follows, of features that move the outcome, too), `arms` (three arms, two of them against the third; n = 1500, d = 10),
`family_null` and `family_power` (outcomes of every family on every scale of effects, without and with modifiers),
`family_wild` (the same without an effect, and one outcome of 10,000),
`family_placebo` (coin flips as in `placebo`, for outcomes taken as each of the families that they may be of), `global`
(tests of the whole table beside t-test, Mann-Whitney, Kolmogorov-Smirnov, MMD and a Wald test of all interactions,
n = 400) and `subgroups` (how often the limits of effects by subgroup hold the truth).
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray

import check_designs
import designs
import family_designs
import real_tables
import several_arms
from global_tests import coverage_run, whole_run
from interaction_tests import interaction_p_values
from modifind import EffectLikelihood, ModifierSelector
from modifind.inference import adjust_p_values

Run = dict[str, Any]
MESS_ROWS = 720
WHOLE_ROWS = 400
UNFOLLOWED_TRAIN_ROWS = 5_000
FAMILY_ROWS = 1_500
# Outcomes of real tables, as what they are taken, on which scale, and how many random rows of each.
FAMILY_PLACEBOS = (
    ("randhie mdvis", "numeric", "difference", 4_000),
    ("randhie mdvis", "count", "difference", 4_000),
    ("randhie mdvis", "count", "ratio", 4_000),
    ("randhie mdvis", "amount", "ratio", 4_000),
    ("hillstrom visit", "binary", "ratio", 10_000),
    ("hillstrom visit", "binary", "odds_ratio", 10_000),
    ("hillstrom spend", "numeric", "difference", 20_000),
    ("hillstrom spend", "amount", "difference", 20_000),
    ("hillstrom spend", "amount", "ratio", 20_000),
    ("thornton got", "binary", "ratio", 2_500),
    ("thornton got", "binary", "odds_ratio", 2_500),
)
LEVELS_ROWS, TIMED_ROWS = 5_000, 20_000
TIMED_LEVELS = (200, 1000)


def statistic(method: str) -> Any:
    method = method.removesuffix(" untold")
    if method.startswith("effect:"):
        return EffectLikelihood(learner=method.split(":")[1])
    return {"effect": "effect_likelihood"}.get(method, method)


def one_run(design: designs.Design, method: str, n: int, seed: int, train_rows: int = 200_000) -> Run:
    warnings.simplefilter("ignore")
    table = design(seed, n)
    start = time.perf_counter()
    parts = method.removesuffix(" untold").split(":")
    sampler = parts[2] if len(parts) > 2 else "auto"
    selector = ModifierSelector(
        statistic(method), sampler=sampler, random_state=seed, max_train_rows=train_rows, missing="category"
    ).set_params(explain=False, **table.settings)
    if method == "wcmmd" and not table.modifiers:
        selector.set_params(n_resamples=199)  # whether p <= 0.05 is all that matters here
    rows = {"sample_weight": table.weights, "clusters": table.clusters, "strata": table.strata}
    told = {} if method.endswith("untold") else rows
    result = selector.fit(table.X, table.y, treatment=table.treatment, **told).result_
    found = result.table
    seconds = time.perf_counter() - start
    true, moved = found.index.isin(table.modifiers), found.index.isin(table.prognostic)
    chosen, p = found["selected"].to_numpy(), found["p_value"].to_numpy()
    alone = chosen
    if "likelihood_p_value" in result.diagnostics:
        alone = adjust_p_values(result.diagnostics["likelihood_p_value"].fillna(1.0).to_numpy()) <= selector.alpha
    return {
        "tpr": chosen[true].mean() if true.any() else math.nan,
        "likelihood_tpr": alone[true].mean() if true.any() else math.nan,
        "fpr": chosen[~true & ~moved].mean(),
        "fdp": chosen[~true].sum() / max(chosen.sum(), 1),
        "prognostic": chosen[moved].mean() if moved.any() else math.nan,
        "prognostic_each": (p[moved] <= 0.05).astype(float),
        "selected": found.index[chosen].tolist(),
        "null_p": p[~true & ~moved],
        "roles": {
            "modifiers": found.loc[true, "role"].tolist(),
            "prognostic": found.loc[moved, "role"].tolist(),
            "others": found.loc[~true & ~moved, "role"].tolist(),
        },
        "null_names": found.index[~true & ~moved].tolist(),
        "modifiers": found.index[true].tolist(),
        "moved": found.index[moved & ~true].tolist(),
        "p": found["p_value"].to_dict(),
        "shape": table.X.shape,
        "seconds": seconds,
    }


def one_resampled(design: designs.Design, n: int, seed: int, train_rows: int) -> tuple[Any, float]:
    """Null p-values of a table in pieces by resampled features, and seconds."""
    warnings.simplefilter("ignore")
    table = design(seed, n)
    start = time.perf_counter()
    selector = ModifierSelector(
        "wcmmd", sampler="gaussian", n_resamples=99, random_state=seed, max_train_rows=train_rows
    ).set_params(explain=False)
    rows = {"sample_weight": table.weights, "strata": table.strata}
    p = selector.fit(table.X, table.y, treatment=table.treatment, **rows).result_.table["p_value"]
    null = ~p.index.isin([*table.modifiers, *table.prognostic])
    return p.to_numpy()[null], time.perf_counter() - start


def p_values(table: designs.Table, X: Any, seed: int, groups: dict[str, list[str]] | None = None) -> Any:
    """P-values of one table by the linear learner and the gaussian sampler."""
    selector = ModifierSelector(
        EffectLikelihood("linear"), sampler="gaussian", propensity=0.5, random_state=seed, feature_groups=groups
    ).set_params(explain=False)
    return selector.fit(X, table.y, treatment=table.treatment).result_.table["p_value"]


class Study:
    """Runs designs and prints rows."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args

    def runs(self, design: designs.Design, method: str = "effect", n: int = 1000, runs: int | None = None) -> list[Run]:
        seeds = range(self.args.seed, self.args.seed + (runs or self.args.runs))
        jobs = (delayed(one_run)(design, method, n, seed) for seed in seeds)
        return Parallel(n_jobs=self.args.jobs)(jobs)

    def in_turn(self, tasks: Iterable[tuple[Any, ...]]) -> Iterator[list[Run]]:
        """The runs of each task, which is what `one_run` takes less its seed; no core waits for a task to end."""
        seeds = range(self.args.seed, self.args.seed + self.args.runs)
        jobs = (delayed(one_run)(*task[:3], seed, *task[3:]) for task in tasks for seed in seeds)
        found = Parallel(n_jobs=self.args.jobs, return_as="generator")(jobs)
        while runs := list(islice(found, self.args.runs)):
            yield runs

    def chosen(self, named: dict[str, designs.Design]) -> dict[str, designs.Design]:
        return {name: design for name, design in named.items() if name.startswith(self.args.only)}

    def rates(self, chosen: dict[str, designs.Design], methods: Sequence[str] = ("effect",)) -> None:
        header("data", "test", "TPR (sd)", "FPR", "mean FDP", "prognostic selected", "raw null share", "s per run")
        for name, design in chosen.items():
            for method in methods:
                runs = self.runs(design, method)
                cells = [f"{mean(runs, 'tpr'):.3f} ({sd(runs, 'tpr'):.2f})", f"{mean(runs, 'fpr'):.3f}"]
                cells += [f"{mean(runs, 'fdp'):.3f}", f"{mean(runs, 'prognostic'):.3f}", f"{null_share(runs):.3f}"]
                row(name, method, *cells, f"{mean(runs, 'seconds'):.1f}")

    def power(self) -> None:
        self.rates(designs.POWER)

    def prognostic(self) -> None:
        self.rates(designs.WITH_PROGNOSTIC)

    def shapes(self) -> None:
        self.rates(designs.SHAPES, self.args.methods)

    def null(self) -> None:
        header("design", "null p-values", "share p <= 0.05", "share p <= 0.01", "standard error", "prognostic, each")
        for name, design in designs.NULL.items():
            probe = design(0, 1000)
            per_table = probe.X.shape[1] - len(probe.modifiers) - len(probe.prognostic)
            wanted = math.ceil(self.args.null_p_values / per_table)
            n_runs = max(self.args.runs, wanted) if per_table > 10 else self.args.runs
            self._null_row(name, self.runs(design, self.args.method, runs=n_runs))

    def streamed(self) -> None:
        """Null designs with many more rows than models are fitted to."""
        n, train_rows = self.args.n, self.args.train_rows
        print(f"n = {n}, models fitted to {train_rows} rows\n")
        header("design", "null p-values", "share p <= 0.05", "share p <= 0.01", "standard error", "prognostic, each")
        known = {name: design for name, design in designs.NULL.items() if name in STREAMED} | designs.PIECES
        for name, design in self.chosen(known).items():
            seeds = range(self.args.seed, self.args.seed + self.args.runs)
            jobs = (delayed(one_run)(design, self.args.method, n, seed, train_rows) for seed in seeds)
            self._null_row(name, Parallel(n_jobs=self.args.jobs)(jobs))

    def streamed_wcmmd(self) -> None:
        """The same by the paper's statistic, gaussian sampler and 99 resamples, with and without weights and strata."""
        n, train_rows = self.args.n, self.args.train_rows
        print(f"n = {n}, models fitted to {train_rows} rows\n")
        header("design", "null p-values", "share p <= 0.05", "share p <= 0.01", "standard error", "s per run")
        known = {name: design for name, design in designs.NULL.items() if name in STREAMED} | designs.PIECES
        for name, design in self.chosen(known).items():
            probe = design(0, 1000)
            if probe.clusters is not None:
                continue
            per_table = probe.X.shape[1] - len(probe.modifiers) - len(probe.prognostic)
            seeds = range(self.args.seed, self.args.seed + math.ceil(self.args.null_p_values / per_table))
            jobs = (delayed(one_resampled)(design, n, seed, train_rows) for seed in seeds)
            p, seconds = zip(*Parallel(n_jobs=self.args.jobs)(jobs), strict=True)
            shares = [(np.array(p) <= level).mean(axis=1) for level in (0.05, 0.01)]
            error = shares[0].std(ddof=1) / math.sqrt(len(p)) if len(p) > 1 else math.nan
            cells = [f"{own.mean():.3f}" for own in shares]
            row(name, np.size(p), *cells, f"{error:.3f}", f"{np.mean(seconds):.0f}")

    def mess(self) -> None:
        """Raw null shares on messy tables; with weights or clusters what they would be if the test were not told."""
        header(
            "design", "null p-values", "share p <= 0.05", "largest of one feature", "share p <= 0.01", "TPR", "untold"
        )
        for name, design in self.chosen(designs.MESS).items():
            told = self.runs(design, self.args.method, n=MESS_ROWS)
            untold = self._untold_share(design)
            p = np.array([run["null_p"] for run in told])
            each = (p <= 0.05).mean(axis=0)
            worst = f"{each.max():.3f} ({told[0]['null_names'][int(each.argmax())]})"
            shares = [f"{(p <= level).mean():.3f}" for level in (0.05, 0.01)]
            row(name, p.size, shares[0], worst, shares[1], f"{mean(told, 'tpr'):.2f}", untold)

    def _untold_share(self, design: designs.Design) -> str:
        """The share where the test is not told of weights, clusters or strata; "refused" where it refuses the table."""
        table = design(self.args.seed, MESS_ROWS)
        if table.weights is None and table.clusters is None and table.strata is None:
            return "-"
        try:
            return f"{null_share(self.runs(design, f'{self.args.method} untold', n=MESS_ROWS)):.3f}"
        except ValueError:
            return "refused"

    def _null_row(self, name: str, runs: list[Run]) -> None:
        p = np.array([run["null_p"] for run in runs])
        error = (p <= 0.05).mean(axis=1).std(ddof=1) / math.sqrt(len(runs))
        moved = np.mean([run["prognostic_each"] for run in runs], axis=0)
        each = ", ".join(f"{share:.2f}" for share in moved) or "-"
        row(name, p.size, f"{(p <= 0.05).mean():.3f}", f"{(p <= 0.01).mean():.3f}", f"{error:.3f}", each)

    def pair(self) -> None:
        """Two columns that say nearly the same, alone, as a group, and one of them without the other; n = 400."""
        header("seed", "p of sbp", "p of dbp", "p of the group", "p of sbp without dbp")
        for seed in range(self.args.seed, self.args.seed + 6):
            table = designs.pair(seed, 400)
            alone = p_values(table, table.X, seed)
            together = p_values(table, table.X, seed, {"pressure": ["sbp", "dbp"]})
            without = p_values(table, table.X.drop(columns="dbp"), seed)
            row(seed, *(f"{p:.1g}" for p in (alone["sbp"], alone["dbp"], together["pressure"], without["sbp"])))

    def groups(self) -> None:
        self._groups(800)

    def streamed_groups(self) -> None:
        print(f"n = {self.args.n}, models fitted to {self.args.train_rows} rows\n")
        self._groups(self.args.n, self.args.train_rows)

    def _groups(self, n: int, train_rows: int = 200_000) -> None:
        """Groups of columns tested as one, each beside what its columns find alone."""
        seeds = range(self.args.seed, self.args.seed + self.args.runs)
        jobs = (delayed(one_grouped)(self.args.method, n, seed, train_rows) for seed in seeds)
        found = Parallel(n_jobs=self.args.jobs)(jobs)
        header("group", "columns", "share p <= 0.05", "share p <= 0.01", "columns alone, share p <= 0.05")
        null = []
        for name, columns in designs.GROUPS.items():
            p = np.array([grouped[name] for grouped, _ in found])
            alone = np.array([single[columns] for _, single in found])
            row(name, ", ".join(columns), f"{(p <= 0.05).mean():.3f}", f"{(p <= 0.01).mean():.3f}", share(alone))
            if name != "both":
                null.append(p)
        p = np.concatenate(null)
        row(f"all null groups ({p.size} p-values)", "", f"{(p <= 0.05).mean():.3f}", f"{(p <= 0.01).mean():.3f}", "")

    def checks(self) -> None:
        """Tables that pass the checks that bear on validity, by kind, linear learner."""
        header("thresholds chosen on it", "quality", "table", "passed", "failed, by kind")
        groups = {"yes": check_designs.CHOSEN_ON, "no": check_designs.HELD_OUT}
        seeds, counts = range(self.args.seed, self.args.seed + self.args.runs), Counter[tuple[str, str, bool]]()
        for chosen, by_quality in groups.items():
            for quality, cases in by_quality.items():
                for name, case in cases.items():
                    if not name.startswith(self.args.only):
                        continue
                    runs = Parallel(n_jobs=self.args.jobs)(delayed(failed_checks)(case, seed) for seed in seeds)
                    done = [names for names in runs if names is not None]
                    kinds = Counter(kind for names in done for kind in names)
                    listed = ", ".join(f"{kind} {count}" for kind, count in kinds.most_common()) or "-"
                    row(chosen, quality, name, f"{sum(not names for names in done)} of {len(done)}", listed)
                    counts.update((chosen, quality, not names) for names in done)
        for chosen, by_quality in groups.items():
            for quality in by_quality:
                passed, total = counts[chosen, quality, True], sum(counts[chosen, quality, ok] for ok in (True, False))
                row(chosen, quality, "all", f"{passed} of {total} ({passed / max(total, 1):.1%})", "")

    def placebo(self) -> None:
        """Coin flips in place of the treatment of real tables: there is no effect that a feature could modify."""
        outcomes = real_tables.read_outcomes(self.args.only)
        header(
            *("outcome", "rows", "features", "runs", "anything selected", "smallest p", "share p <= 0.05"),
            *("what was selected", "s per run"),
        )
        tasks = ((designs.placebo(outcome.X, outcome.y), self.args.method, len(outcome.X)) for outcome in outcomes)
        pooled = []
        for outcome, runs in zip(outcomes, self.in_turn(tasks), strict=True):
            self._placebo_row(outcome.name, *outcome.X.shape, runs)
            pooled += runs
        if pooled:
            self._placebo_row("all", "", "", pooled, names=False)

    def _placebo_row(self, name: str, rows: object, features: object, runs: list[Run], names: bool = True) -> None:
        p = np.concatenate([run["null_p"] for run in runs])
        some = sum(bool(run["selected"]) for run in runs)
        often = Counter(feature for run in runs for feature in run["selected"]).most_common()
        which = ", ".join(f"{feature} {count}" for feature, count in often) or "-"
        cells = [f"{some} ({some / len(runs):.3f})", f"{p.min():.2g}", f"{(p <= 0.05).mean():.3f}"]
        row(name, rows, features, len(runs), *cells, which if names else "", f"{mean(runs, 'seconds'):.1f}")

    def zero(self) -> None:
        """A treatment that does nothing; X1 is prognostic."""
        print(f"{designs.TEN_FEATURES} features\n")
        header("design", "runs", "X1 selected", "X1, share p <= 0.05", "other features, share p <= 0.05")
        chosen = self.chosen(designs.ZERO)
        pooled = []
        for name, runs in zip(chosen, self.in_turn((d, self.args.method, 1000) for d in chosen.values()), strict=True):
            row(name, len(runs), *prognostic_shares(runs), f"{null_share(runs):.3f}")
            pooled += runs
        if pooled:
            row("all", len(pooled), *prognostic_shares(pooled), f"{null_share(pooled):.3f}")

    def tails(self) -> None:
        """What changes neither the average nor, much, the middle of an arm's distribution."""
        header("design", "n", "runs", "TPR", "tables with a false selection", "raw null share", "TPR of the likelihood")
        for name, (design, n) in designs.TAILS.items():
            if name.startswith(self.args.only):
                runs = self.runs(design, n=n)
                false, alone = np.mean([run["fdp"] > 0 for run in runs]), mean(runs, "likelihood_tpr")
                row(
                    name,
                    n,
                    len(runs),
                    f"{mean(runs, 'tpr'):.3f}",
                    f"{false:.3f}",
                    f"{null_share(runs):.3f}",
                    f"{alone:.3f}",
                )

    def noise(self) -> None:
        """No effect, and noise that is heavy, skewed, contaminated or discrete; X30 is prognostic."""
        header("design", "null p-values", "share p <= 0.05", "share p <= 0.01", "standard error", "prognostic, each")
        for name, design in self.chosen(designs.NOISE).items():
            self._null_row(name, self.runs(design, self.args.method))

    def per_cluster(self) -> None:
        """C1 modifies, C3 and D1 have one value per cluster and are null, C2 is prognostic; 4 other null features."""
        header(
            *("design", "runs", "C1 found", "C1, told no clusters", "null features of clusters, share p <= 0.05"),
            *("of rows", "prognostic, each", "s per run"),
        )
        chosen = {name: own for name, own in designs.CLUSTER_LEVEL.items() if name.startswith(self.args.only)}
        for name, (n, design) in chosen.items():
            runs = self.runs(design, self.args.method, n=n)
            try:
                untold = self.runs(design, f"{self.args.method} untold", n=n, runs=min(self.args.runs, 10))
                alone = f"{mean(untold, 'tpr'):.3f} of {len(untold)}"
            except ValueError:
                alone = "refused"
            own = np.array([[run["p"][column] for column in ("C3", "D1")] for run in runs])
            rest = np.array([[run["p"][column] for column in ("X1", "X3", "X4", "X5")] for run in runs])
            moved = np.mean([run["prognostic_each"] for run in runs], axis=0)
            shares = [f"{np.mean(p <= 0.05):.3f}" for p in (own, rest)]
            each = ", ".join(f"{share:.2f}" for share in moved)
            row(name, len(runs), f"{mean(runs, 'tpr'):.3f}", alone, *shares, each, f"{mean(runs, 'seconds'):.1f}")

    def covariates(self) -> None:
        """Features of real tables and simulated outcomes: a constant effect, two features confound."""
        header("features of", "null p-values", "share p <= 0.05", "share p <= 0.01", "standard error", "confounders")
        for outcome in {
            outcome.name.split()[0]: outcome for outcome in real_tables.read_outcomes(self.args.only)
        }.values():
            runs = self.runs(designs.with_null_outcome(outcome.X), self.args.method)
            p = [run["null_p"] for run in runs]
            shares = np.array([np.mean(own <= 0.05) for own in p])
            every = np.concatenate(p)
            row(
                *(
                    outcome.name.split()[0],
                    every.size,
                    f"{np.mean(every <= 0.05):.3f}",
                    f"{np.mean(every <= 0.01):.3f}",
                ),
                *(f"{shares.std(ddof=1) / math.sqrt(len(runs)):.3f}", prognostic_shares(runs)[1]),
            )

    def related(self) -> None:
        """X2 follows modifiers and modifies nothing."""
        print(f"{designs.TEN_FEATURES} features\n")
        header("design", "runs", "X2, share p <= 0.05", "other null features", "modifiers found", "s per run")
        chosen, pooled = self.chosen(designs.RELATED), []
        for name, runs in zip(chosen, self.in_turn((d, self.args.method, 1000) for d in chosen.values()), strict=True):
            self._related_row(name, runs)
            pooled += runs
        if pooled:
            self._related_row("all", pooled)

    def _related_row(self, name: str, runs: list[Run]) -> None:
        own = np.array([run["p"]["X2"] for run in runs])
        others = np.concatenate([run["null_p"] for run in runs])
        rest = (np.sum(others <= 0.05) - np.sum(own <= 0.05)) / (others.size - own.size)
        row(
            *(name, len(runs), f"{np.mean(own <= 0.05):.3f}", f"{rest:.3f}", f"{mean(runs, 'tpr'):.3f}"),
            f"{mean(runs, 'seconds'):.1f}",
        )

    def assigned(self) -> None:
        """Nothing modifies a constant effect."""
        print(f"{designs.TEN_FEATURES} features\n")
        header(
            "treated by", "runs", "tables with a selection", "all features, share p <= 0.05", "X2 and X3", "s per run"
        )
        chosen, pooled = self.chosen(designs.ASSIGNED), []
        for name, runs in zip(chosen, self.in_turn((d, self.args.method, 1000) for d in chosen.values()), strict=True):
            self._assigned_row(name, runs)
            pooled += runs
        if pooled:
            self._assigned_row("all", pooled)

    def _assigned_row(self, name: str, runs: list[Run]) -> None:
        own = np.concatenate([run["prognostic_each"] for run in runs])
        p = np.array([list(run["p"].values()) for run in runs])
        some = np.mean([bool(run["selected"]) for run in runs])
        cells = (f"{some:.3f}", f"{np.mean(p <= 0.05):.3f}", f"{own.mean():.3f}", f"{mean(runs, 'seconds'):.1f}")
        row(name, len(runs), *cells)

    def unfollowed(self) -> None:
        """A constant effect and prognostic functions that learners hardly follow, in memory and in pieces."""
        rows = UNFOLLOWED_TRAIN_ROWS
        print(f"{designs.TEN_FEATURES} features; models fitted to at most {rows} rows\n")
        header(
            *("design", "n", "prognostic selected", "prognostic, share p <= 0.05", "other features selected"),
            "s per run",
        )
        cases = [(name, d, n) for n in self.args.sizes for name, d in self.chosen(designs.UNFOLLOWED).items()]
        tasks = ((design, self.args.method, n, rows) for _, design, n in cases)
        pooled = []
        for (name, _, n), runs in zip(cases, self.in_turn(tasks), strict=True):
            row(name, n, *prognostic_shares(runs), f"{mean(runs, 'fpr'):.3f}", f"{mean(runs, 'seconds'):.1f}")
            pooled += runs
        if pooled:
            row("all", "", *prognostic_shares(pooled), f"{mean(pooled, 'fpr'):.3f}", f"{mean(pooled, 'seconds'):.1f}")

    def one_arm(self) -> None:
        self.rates(designs.ONE_ARM)

    def family_null(self) -> None:
        """Every family and scale: no effect, and one that is constant on the scale; X26 to X30 are prognostic."""
        self._family_shares([(own, shape) for own in self._families() for shape in ("none", "constant")])

    def family_wild(self) -> None:
        """No effect, and one row whose outcome is 10,000 instead: of families that have such outcomes."""
        self._family_shares([(own, "wild") for own in self._families() if own[0] in family_designs.WILD_KINDS])

    def _family_shares(self, cases: list[tuple[tuple[str, str], str]]) -> None:
        header("outcome", "scale", "effect", "runs", "prognostic selected", "prognostic, share p <= 0.05", "null share")
        tasks = ((family_designs.design(*own, shape), self.args.method, 1000) for own, shape in cases)
        pooled = []
        for (own, shape), runs in zip(cases, self.in_turn(tasks), strict=True):
            row(*own, shape, len(runs), *prognostic_shares(runs), f"{null_share(runs):.3f}")
            pooled += runs
        row("all", "", "", len(pooled), *prognostic_shares(pooled), f"{null_share(pooled):.3f}")

    def family_power(self) -> None:
        """Every family and scale: X1 and X2 modify the effect, beside a generalised linear model with interactions."""
        header("outcome", "scale", "modification", "n", "TPR", "FPR", "TPR of A x X", "FPR of A x X", "s per run")
        cases = [(own, shape) for own in self._families() for shape in ("linear", "threshold")]
        tasks = ((family_designs.design(*own, shape), self.args.method, FAMILY_ROWS) for own, shape in cases)
        for (own, shape), runs in zip(cases, self.in_turn(tasks), strict=True):
            seeds = range(self.args.seed, self.args.seed + self.args.runs)
            peer = [one_interaction_test(*own, shape, seed) for seed in seeds]
            rates = [f"{mean(runs, 'tpr'):.3f}", f"{mean(runs, 'fpr'):.3f}"]
            rates += [f"{np.mean(own):.3f}" for own in zip(*peer, strict=True)]
            row(*own, shape, FAMILY_ROWS, *rates, f"{mean(runs, 'seconds'):.1f}")

    def family_placebo(self) -> None:
        """Coin flips in place of the treatment of real tables, as every family that the outcome may be of."""
        header("outcome", "taken as", "scale", "rows", "runs", "anything selected", "smallest p", "share p <= 0.05")
        outcomes = {outcome.name: outcome for outcome in real_tables.read_outcomes()}
        cases = [own for own in FAMILY_PLACEBOS if own[0] in outcomes and own[0].startswith(self.args.only)]
        tasks = []
        for name, kind, scale, n in cases:
            outcome, settings = outcomes[name], {"outcome": kind, "effect_scale": scale, "propensity": 0.5}
            tasks.append((designs.placebo(outcome.X, outcome.y, settings), self.args.method, n))
        for own, runs in zip(cases, self.in_turn(tasks), strict=True):
            p = np.concatenate([run["null_p"] for run in runs])
            some = sum(bool(run["selected"]) for run in runs)
            row(*own, len(runs), f"{some} ({some / len(runs):.3f})", f"{p.min():.2g}", f"{np.mean(p <= 0.05):.3f}")

    def _families(self) -> list[tuple[str, str]]:
        return [own for own in family_designs.OUTCOMES if " ".join(own).startswith(self.args.only)]

    def sizes(self) -> None:
        header("data", "n", "TPR (sd)", "FPR", "mean FDP", "s per run")
        for name, design in designs.POWER.items():
            for n in (500, 2000):
                runs = self.runs(design, n=n)
                tpr = f"{mean(runs, 'tpr'):.3f} ({sd(runs, 'tpr'):.2f})"
                row(
                    name, n, tpr, f"{mean(runs, 'fpr'):.3f}", f"{mean(runs, 'fdp'):.3f}", f"{mean(runs, 'seconds'):.1f}"
                )

    def curve(self) -> None:
        sizes = (0.01, 0.02, 0.03, 0.05, 0.08, 0.12)
        header("what changes with the score", *(f"size {size:g}" for size in sizes))
        for spread, what in ((False, "difference of means"), (True, "log spread of the treated")):
            cells = []
            for size in sizes:
                runs = self.runs(designs.effect_of_size(size, spread=spread))
                cells.append(f"{mean(runs, 'tpr'):.2f} / {mean(runs, 'fpr'):.3f}")
            row(f"{what}, TPR / FPR", *cells)

    def roles(self) -> None:
        """What is said of features that modify the effect, that predict the outcome of both arms, and of others."""
        header("data", "features", "modifier", "prognostic", "neither")
        for name, design in {**designs.WITH_PROGNOSTIC, "constant effect": designs.constant_effect}.items():
            runs = self.runs(design, runs=min(self.args.runs, 20))
            for kind in ("modifiers", "prognostic", "others"):
                found = [role for run in runs for role in run["roles"][kind]]
                if found:
                    row(
                        name,
                        kind,
                        *(f"{found.count(role) / len(found):.3f}" for role in ("modifier", "prognostic", "")),
                    )

    def repeats(self) -> None:
        header("data", "repeats", "median sd of z over 8 seeds", "selected sets that differ from the commonest")
        seeds = range(8)
        for kind in ("LinVar", "NonlinVar"):
            for cv_repeats in (1, 5):
                jobs = (delayed(one_repeat)(kind, self.args.seed, cv_repeats, seed) for seed in seeds)
                found = Parallel(n_jobs=self.args.jobs)(jobs)
                z = np.array([scores for scores, _ in found])
                sets = [chosen for _, chosen in found]
                common = max(sets, key=sets.count)
                row(kind, cv_repeats, f"{np.median(z.std(axis=0)):.2f}", f"{sum(s != common for s in sets)} of 8")

    def global_(self) -> None:
        """Tests of the whole table: shares of p <= 0.05 without an effect, and with one beside peers; n = 400."""
        tests = ("average", "distribution", "modification")
        peers = ("t-test", "Mann-Whitney", "Kolmogorov-Smirnov", "MMD", "Wald test of all interactions")
        for title, cases in (("no effect", designs.WHOLE_NULL), ("effect", designs.WHOLE_POWER)):
            if chosen := self.chosen(cases):
                header(title, "runs", *tests, *peers)
            for name, design in chosen.items():
                row(name, self.args.runs, *self._shares(design))
            print()

    def subgroups(self) -> None:
        """Confounded treatment, an effect of 1 + X1 or ratios of risks that rise with X1; six subgroups in a run."""
        header("effect", "rows", "intervals", "covered", "of subgroups, the least")
        seeds = range(self.args.seed, self.args.seed + self.args.runs)
        for scale, n in (("difference", WHOLE_ROWS), ("difference", 1000), ("ratio", 1000), ("odds_ratio", 1000)):
            jobs = (delayed(coverage_run)(n, seed, scale) for seed in seeds)
            found = np.array(Parallel(n_jobs=self.args.jobs)(jobs))
            row(scale, n, found.size, f"{found.mean():.3f}", f"{found.mean(axis=0).min():.3f}")

    def _shares(self, design: designs.Design) -> list[str]:
        seeds = range(self.args.seed, self.args.seed + self.args.runs)
        jobs = (delayed(whole_run)(design, WHOLE_ROWS, seed, peers=True) for seed in seeds)
        found = Parallel(n_jobs=self.args.jobs)(jobs)
        return [f"{np.mean([own[name] <= 0.05 for own in found]):.3f}" for name in found[0]]

    def levels(self) -> None:
        header("design", "category p <= 0.05", "modifier X1", "others p <= 0.05", "s per run")
        for name, design in self.chosen(designs.LEVELS).items():
            runs = self.runs(design, self.args.method, n=LEVELS_ROWS)
            category, first = (np.array([run["p"][column] for run in runs]) for column in ("site", "X1"))
            others = np.concatenate([[run["p"][c] for c in run["p"] if c not in ("site", "X1")] for run in runs])
            small = [f"{np.mean(p <= 0.05):.3f}" for p in (category, first, others)]
            row(name, *small, f"{mean(runs, 'seconds'):.1f}")
        print()
        header("levels", "CPU s without the category", "with it", "times")
        for n_levels in TIMED_LEVELS:
            table = designs.many_levels(n_levels)(self.args.seed, TIMED_ROWS)
            without, with_it = (cpu_seconds(table, X) for X in (table.X.drop(columns="site"), table.X))
            row(n_levels, f"{without:.1f}", f"{with_it:.1f}", f"{with_it / without:.1f}")

    def arms(self) -> None:
        columns = ("TPR", "right contrast named", "false contrasts", "FDR over contrasts (se)", "null share")
        header("design", *columns, "Bonferroni", "Cauchy", "any null feature selected")
        for name in self.chosen(several_arms.DESIGNS):
            seeds = range(self.args.seed, self.args.seed + self.args.runs)
            runs = Parallel(n_jobs=self.args.jobs)(delayed(several_arms.one_arms_run)(name, seed) for seed in seeds)
            found = [run for run in runs if run["selected"] & run["features"]]
            false = np.array([len(run["chosen"] - run["true"]) / max(len(run["chosen"]), 1) for run in runs])
            p, each = (np.concatenate([run[part] for run in runs]) for part in ("null_p", "contrast_p"))
            cells = ["-", "-"]
            if runs[0]["features"]:
                named = np.mean([run["true"] <= run["chosen"] for run in found]) if found else math.nan
                cells = [f"{len(found) / len(runs):.3f}", f"{named:.3f}"]
            cells += [f"{np.mean([len(run['chosen'] - run['true']) > 0 for run in runs]):.3f}"]
            cells += [f"{false.mean():.3f} ({false.std() / math.sqrt(len(runs)):.3f})", f"{(p <= 0.05).mean():.3f}"]
            bonferroni, cauchy = each.min(axis=1) * each.shape[1], several_arms.cauchy_p_values(each)
            cells += [f"{(own <= 0.05).mean():.3f}" for own in (bonferroni, cauchy)]
            row(name, *cells, f"{np.mean([bool(run['selected'] - run['features']) for run in runs]):.3f}")


setattr(Study, "global", Study.global_)  # which is a word of the language


def cpu_seconds(table: designs.Table, X: Any) -> float:
    """CPU time of one fit with everything at its default, in one process."""
    warnings.simplefilter("ignore")
    start = time.process_time()
    ModifierSelector(random_state=0, n_jobs=1).fit(X, table.y, treatment=table.treatment)
    return time.process_time() - start


def failed_checks(case: check_designs.CaseOf, seed: int) -> list[str] | None:
    """Kinds of checks that bear on validity and that a table fails; None where its file is not at hand."""
    warnings.simplefilter("ignore")
    try:
        table = case(np.random.default_rng([seed, zlib.crc32(case.__name__.encode())]))
    except FileNotFoundError:
        return None
    selector = ModifierSelector(EffectLikelihood("linear"), random_state=seed, explain=False, **table.settings)
    try:
        result = selector.fit(table.X, table.y, treatment=table.treatment, **table.rows).result_
    except ValueError:
        return ["refused"]
    checks = result.checks[~result.checks["passed"] & result.checks["validity"]]
    assert result.ok == (not len(checks))
    return sorted(set(checks["name"]))


def one_repeat(kind: str, data_seed: int, cv_repeats: int, seed: int) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    warnings.simplefilter("ignore")
    table = designs.paper(kind)(data_seed, 1000)
    selector = ModifierSelector(EffectLikelihood(cv_repeats=cv_repeats), random_state=seed, explain=False)
    result = selector.fit(table.X, table.y, treatment=table.treatment).result_
    return result.table["statistic"].to_numpy(), tuple(sorted(result.selected))


def one_grouped(method: str, n: int, seed: int, train_rows: int) -> tuple[Any, Any]:
    """P-values with and without groups."""
    warnings.simplefilter("ignore")
    table = designs.grouped_columns(seed, n)
    sampler = (*method.split(":"), "auto", "auto")[2]
    settings = {"sampler": sampler, "random_state": seed, "max_train_rows": train_rows, "explain": False}
    found = []
    for groups in (designs.GROUPS, None):
        selector = ModifierSelector(statistic(method), feature_groups=groups, **settings)
        found.append(selector.fit(table.X, table.y, treatment=table.treatment).result_.table["p_value"])
    return found[0], found[1]


def one_interaction_test(kind: str, scale: str, shape: str, seed: int) -> tuple[float, float]:
    """Shares of modifiers and of others that interactions with the treatment select (BH)."""
    table = family_designs.design(kind, scale, shape)(seed, FAMILY_ROWS)
    p = interaction_p_values(table.X.to_numpy(), table.treatment, table.y, kind, scale)
    chosen, true = adjust_p_values(p) <= 0.05, table.X.columns.isin(table.modifiers)
    null = ~true & ~table.X.columns.isin(table.prognostic)
    return float(chosen[true].mean()), float(chosen[null].mean())


def share(p: NDArray[np.float64]) -> str:
    return ", ".join(f"{own:.2f}" for own in (p <= 0.05).mean(axis=0))


def mean(runs: list[Run], name: str) -> float:
    return float(np.mean([run[name] for run in runs]))


def sd(runs: list[Run], name: str) -> float:
    return float(np.std([run[name] for run in runs], ddof=1))


def null_share(runs: list[Run]) -> float:
    return float(np.mean(np.concatenate([run["null_p"] for run in runs]) <= 0.05))


def prognostic_shares(runs: list[Run]) -> list[str]:
    """Shares of all prognostic features that were selected, and whose raw p-values are at most 0.05."""
    small = np.concatenate([run["prognostic_each"] for run in runs])
    selected = sum(run["prognostic"] * run["prognostic_each"].size for run in runs) / small.size
    return [f"{selected:.3f}", f"{small.mean():.3f}"]


def header(*cells: object) -> None:
    row(*cells)
    row(*("---" for _ in cells))


def row(*cells: object) -> None:
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


TABLES = (
    *("power", "prognostic", "shapes", "null", "sizes", "curve", "roles", "repeats"),
    *(
        "groups",
        "pair",
        "streamed",
        "streamed_groups",
        "streamed_wcmmd",
        "mess",
        "placebo",
        "zero",
        "unfollowed",
        "one_arm",
        "tails",
        "noise",
        "checks",
    ),
    *("levels", "related", "assigned", "per_cluster", "covariates", "arms", "global", "subgroups"),
    *("family_null", "family_wild", "family_power", "family_placebo"),
)
STREAMED = [name for name in designs.NULL if not name.startswith(("n = 300", "columns that", "log-normal"))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=TABLES)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0, help="first seed; 1000 and above are for final figures")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument(
        "--method",
        default="effect",
        help="of null, groups, mess, placebo, zero and unfollowed: effect, effect:LEARNER[:SAMPLER] or wcmmd",
    )
    parser.add_argument(
        "--only", default="", help="designs of mess, placebo, zero, unfollowed and families whose names begin with this"
    )
    parser.add_argument(
        "--null-p-values", type=int, default=2000, help="p-values of each design of null and streamed_wcmmd, at least"
    )
    parser.add_argument("--methods", nargs="+", default=["effect", "wcmmd"], help="tests of the shapes table")
    parser.add_argument("--n", type=int, default=20_000, help="rows of the streamed table")
    parser.add_argument("--train-rows", type=int, default=2_000, help="rows that models see in the streamed table")
    parser.add_argument(
        "--sizes", nargs="+", type=int, default=[1000, 5000, 100_000], help="rows of the unfollowed table"
    )
    args = parser.parse_args()
    study = Study(args)
    for name in args.tables:
        start = time.perf_counter()
        print(
            f"\n## {name}: {args.runs} runs, seeds from {args.seed}, d=30, n=1000 if not said otherwise\n", flush=True
        )
        getattr(study, name)()
        print(f"\n{time.perf_counter() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
