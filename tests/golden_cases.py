"""Small fits of every kind, whose results are kept in tests/golden: what a change of the code must not change.

    python tests/golden_cases.py --before HEAD~1                 # bit for bit the same as an earlier version
    python tests/golden_cases.py --before HEAD~1 --log-p 1e-9    # p-values may move by so much of themselves
    python tests/golden_cases.py --write                         # cut the kept results anew

The kept results are compared to a tolerance, because machines differ in the last bits, p-values on the log scale: an
absolute tolerance would let a tiny one grow by orders of magnitude. A commit that cuts them anew
says which numbers changed, why, and by how much.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "benchmarks"))

from versions import earlier_sources, environment  # noqa: E402

KEPT = HERE / "golden"
ROWS = 300
PIECES = "pieces"
DIGITS = 10  # of kept numbers
IS_P_VALUE = re.compile(r"(p_value|p_adjusted)[^/]*$|_p(\[\d+\])?$")  # the place of a number in a record
PARTS = ("table", "diagnostics", "curves", "checks", "changes", "overall", "tests", "subgroups", "overlap", "warnings")


def table(seed: int = 0, *, missing: bool = False) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """Features (numbers and a category), a confounded treatment, and an outcome whose effect follows `age`."""
    rng = np.random.default_rng([seed, 61])
    frame = pd.DataFrame(rng.standard_normal((ROWS, 3)), columns=["age", "dose", "score"])
    frame["dose"] += 0.5 * frame["age"]
    frame["ward"] = rng.choice(["east", "north", "west"], ROWS)
    treatment = (rng.random(ROWS) < 1 / (1 + np.exp(-0.6 * frame["dose"]))).astype(int).to_numpy()
    y = treatment * (1 + 1.5 * frame["age"]) + frame["score"] + (frame["ward"] == "west") + rng.standard_normal(ROWS)
    if missing:
        frame.loc[rng.random(ROWS) < 0.1, "score"] = np.nan
        frame.loc[rng.random(ROWS) < 0.1, "ward"] = None
    return frame, y.to_numpy(), treatment


def fit(statistic: Any = None, sampler: Any = "gaussian", /, *, way: str = "", **settings: Any) -> Any:
    """The result of one fit of the table, by the likelihood of straight lines unless another statistic is given."""
    from modifind import EffectLikelihood, ModifierSelector

    X, y, treatment = table(missing=way == "missing")
    rng = np.random.default_rng(7)
    rows: dict[str, Any] = {}
    if way == "weights":
        rows["sample_weight"] = rng.uniform(0.5, 2.0, ROWS)
    elif way == "clusters":
        rows["clusters"] = np.repeat(np.arange(ROWS // 4), 4)
    elif way == "strata":
        rows |= {"strata": X.pop("ward").to_numpy(), "features": list(X)}  # "dose" differs between the arms
    elif way == "missing":
        settings["missing"] = "category"
    elif way == "groups":
        settings["feature_groups"] = {"body": ["age", "dose"]}
    elif way == "binary":
        y = (y > np.median(y)).astype(float)
    elif way == "adjusted":
        rows["adjust_for"] = ["score"]
    elif way == "outcome":
        y = np.where(rng.random(ROWS) < 0.25, np.nan, y)
        settings["missing_outcome"] = "weight"
    elif way == PIECES:
        settings["max_train_rows"] = 200
    statistic = EffectLikelihood("linear") if statistic is None else statistic
    selector = ModifierSelector(statistic, sampler, random_state=3, n_jobs=1, n_resamples=49, **settings)
    return selector.fit(X, y, treatment, **rows).result_


def cases() -> dict[str, Callable[[], Any]]:
    """What is fitted, by name; each call returns the result of one fit."""
    from modifind import EffectLikelihood
    from modifind.baselines import SIEM
    from modifind.statistics import WCMMD

    ways = ("weights", "clusters", "strata", "missing", "groups", "binary", "adjusted", "outcome", PIECES)
    found: dict[str, Callable[[], Any]] = {"default": lambda: fit("effect_likelihood", "auto")}
    for way in ways:
        found[f"likelihood {way}"] = lambda way=way: fit(way=way)
    for sampler in ("splines", "boosting", "marginal", "auto"):
        found[f"likelihood {sampler}"] = lambda sampler=sampler: fit(None, sampler)
    for learner in ("splines", "boosting"):
        found[f"likelihood by {learner}"] = lambda learner=learner: fit(EffectLikelihood(learner))
    found["likelihood overlap"] = lambda: fit(population="overlap")
    found["likelihood splines missing"] = lambda: fit(None, "splines", way="missing")
    found["likelihood splines weights"] = lambda: fit(None, "splines", way="weights")
    found["likelihood splines pieces"] = lambda: fit(None, "splines", way=PIECES)
    for way in ("weights", "clusters", "strata", "missing", "groups"):
        found[f"pieces {way}"] = lambda way=way: fit(way=way, max_train_rows=200)
    for way in ("", "weights", "strata", "missing", "binary"):
        found[f"wcmmd {way}".strip()] = lambda way=way: fit(WCMMD(), way=way)
    for estimator in ("exact", "rff"):
        found[f"wcmmd {estimator}"] = lambda estimator=estimator: fit(WCMMD(estimator))
    found["wcmmd marginal"] = lambda: fit(WCMMD(), "marginal")
    found["placebo"] = lambda: fit(placebo_runs=2, explain=False)

    def siem() -> Any:
        X, y, treatment = table()
        return SIEM(random_state=3).fit(X, y, treatment=treatment).result_

    found["siem"] = siem
    return found


def as_record(result: Any) -> dict[str, Any]:
    """A result as plain values, without what depends on the version or the time of day."""
    whole = result.to_dict()
    return {name: part for name, part in whole.items() if name not in ("versions", "settings", "format")}


def kept_part(record: dict[str, Any]) -> dict[str, Any]:
    """What of a record is kept in the repository."""
    return {name: _rounded(record[name]) for name in PARTS if name in record}


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def is_number(value: Any) -> bool:
    """Whether a value of a record is a number; NaN may be a text there."""
    return isinstance(value, float | int) and not isinstance(value, bool)


def log_distance(now: float, before: float) -> float:
    """How far apart two p-values are on the log scale: 0 for two that are missing, and infinity for one alone."""
    if now == before or (np.isnan(now) and np.isnan(before)):
        return 0.0
    return abs(float(np.log(now) - np.log(before))) if now > 0 and before > 0 else np.inf


def log_p_moves(now: Any, before: Any, place: str = "") -> Iterator[float]:
    """How far each p-value that two records share has moved on the log scale."""
    if isinstance(now, dict) and isinstance(before, dict):
        for key in now.keys() & before.keys():
            yield from log_p_moves(now[key], before[key], f"{place}/{key}")
    elif isinstance(now, list) and isinstance(before, list):
        for i, (one, other) in enumerate(zip(now, before, strict=False)):
            yield from log_p_moves(one, other, f"{place}[{i}]")
    elif IS_P_VALUE.search(place) and is_number(now) and is_number(before):
        yield log_distance(now, before)


def differences(
    now: Any,
    before: Any,
    place: str = "",
    *,
    relative: float = 0.0,
    absolute: float = 0.0,
    log_p: float = 0.0,
) -> Iterator[str]:
    """The places where two records differ by more than a tolerance, which is `log_p` for logarithms of p-values."""
    tolerance = {"relative": relative, "absolute": absolute, "log_p": log_p}
    if isinstance(now, dict) and isinstance(before, dict):
        for key in sorted({*now, *before}, key=str):
            if key not in now or key not in before:
                yield f"{place}/{key}: only {'now' if key in now else 'before'}"
            else:
                yield from differences(now[key], before[key], f"{place}/{key}", **tolerance)
    elif isinstance(now, list) and isinstance(before, list):
        if len(now) != len(before):
            yield f"{place}: {len(now)} values, before {len(before)}"
        for i, (one, other) in enumerate(zip(now, before, strict=False)):
            yield from differences(one, other, f"{place}[{i}]", **tolerance)
    elif IS_P_VALUE.search(place) and is_number(now) and is_number(before):
        if log_distance(now, before) > log_p:
            yield f"{place}: {now!r}, before {before!r}"
    elif isinstance(now, float) and is_number(before):
        both_missing = np.isnan(now) and np.isnan(before)
        if not (both_missing or now == before or abs(now - before) <= absolute + relative * abs(before)):
            yield f"{place}: {now!r}, before {before!r}"
    elif now != before:
        yield f"{place}: {now!r}, before {before!r}"


def kept_file(name: str) -> Path:
    return KEPT / f"{name.replace(' ', '_')}.json"


def run(name: str) -> dict[str, Any]:
    """The record of one case."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return as_record(cases()[name]())


def _records_of(sources: Path, names: list[str]) -> dict[str, Any]:
    """Records of the cases by the package in `sources`, from a process of its own."""
    command = [sys.executable, __file__, "--print", *names]
    done = subprocess.run(command, env=environment(sources), check=True, capture_output=True, text=True)
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def compare(revision: str, names: list[str], log_p: float | None = None, relative: float = 0.0) -> int:
    """Print where this version differs from an earlier one, beyond what is tolerated; the number of cases that do."""
    with earlier_sources(revision) as sources:
        before = _records_of(sources, names)
    now = _records_of(HERE.parent / "src", names)
    changed = 0
    for name in names:
        found = list(differences(now[name], before[name], log_p=log_p or 0.0, relative=relative))
        changed += bool(found)
        print(f"{name}: " + (f"{len(found)} values differ, {found[0]}" if found else "the same"), end="")
        moved = max(log_p_moves(now[name], before[name]), default=0.0)
        print("" if log_p is None else f"; logarithms of p-values moved by at most {moved:.2g}")
    print(f"{changed} of {len(names)} cases differ")
    return changed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="cases; all of them if none is named")
    parser.add_argument("--before", help="an earlier commit to compare with")
    parser.add_argument("--log-p", type=float, help="how far logarithms of p-values may move; prints how far they did")
    parser.add_argument("--relative", type=float, default=0.0, help="by how much of themselves other numbers may move")
    parser.add_argument("--write", action="store_true", help="keep the results as they are now")
    parser.add_argument("--print", action="store_true", help="records as JSON, on standard output")
    args = parser.parse_args()
    names = args.names or list(cases())
    if args.before:
        sys.exit(compare(args.before, names, args.log_p, args.relative) > 0)
    if args.print:
        print(json.dumps({name: run(name) for name in names}))
    elif args.write:
        KEPT.mkdir(exist_ok=True)
        for name in names:
            kept_file(name).write_text(json.dumps(kept_part(run(name)), separators=(",", ":")) + "\n", encoding="utf-8")
    else:
        print("\n".join(names))


if __name__ == "__main__":
    main()
