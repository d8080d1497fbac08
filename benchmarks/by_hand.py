"""The default test beside what a statistician would do by hand, on tables where that is strong.

    python benchmarks/by_hand.py --study trial --runs 600 --seed 1000 --jobs 2
    python benchmarks/by_hand.py --study level placebo --out runs.jsonl      # killed, it goes on where it was
    python benchmarks/by_hand.py --study trial --out runs.jsonl --runs 0     # the table of what has been run
    python benchmarks/by_hand.py --study trial --out runs.jsonl --label new --before old

prints one Markdown table per study. `trial` (n = 300 to 600, coin), `confounded` (n = 1000), `families` (binary
outcomes, counts, levels, amounts), `categories` (3 to 12 levels), `pure` (products, and 200 features), `shapes` (mean
and variance stay), `paper` (the paper's data), `many_rows` (100,000 rows of it), `level` (nothing modifies), `placebo`
(coin flips on real tables) and `halves` (what of a half's finds the other half of a real trial repeats). Real tables
come from the folder named by $MODIFIND_DATA. For `placebo` and `halves` runs are flips and halvings. Every study has a
default number of runs, in `STUDIES`.

Fits are defaults with one process; fair coins are declared. Standard errors are in parentheses, those of differences
are of runs in pairs, those of null shares take p-values of one table together. A target that is missed by at most two
standard errors says so. A file of runs may hold those of several versions, which `--label` names when they are run;
`--before` adds a table that compares the default with another label on the same seeds. Files may be joined by `cat`.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

from joblib import Parallel, delayed
from threadpoolctl import threadpool_limits

import by_hand_studies as studies
import halves
import placebo
from by_hand_studies import Case
from by_hand_tables import Record, level_table, power_table, replication_table, versions_table
from modifind import __version__


class Study(NamedTuple):
    """Its cases, its table, and how many runs it has by default."""

    cases: Callable[[Any], list[Case]]
    table: Callable[..., str]
    runs: int


STUDIES = {
    "trial": Study(studies.trial, power_table, 600),
    "confounded": Study(studies.confounded, power_table, 300),
    "families": Study(studies.families, power_table, 100),
    "categories": Study(studies.categories, power_table, 300),
    "pure": Study(studies.pure, power_table, 100),
    "shapes": Study(studies.shapes, power_table, 60),
    "paper": Study(studies.paper, power_table, 50),
    "many_rows": Study(studies.many_rows, power_table, 10),
    "level": Study(studies.level, level_table, 125),
    "placebo": Study(placebo.cases, placebo.table, 4),
    "halves": Study(halves.cases, replication_table, 10),
}


def one_run(study: str, case: Case, label: str, seed: int) -> Record:
    """A record of one run; what ended in an error says so and is tried again by the next call."""
    place = {"study": study, "design": case.design, "n": case.n, "seed": seed, "label": label}
    if case.table:
        place["table"] = case.table
    try:
        with threadpool_limits(limits=1):
            return {**place, **case.run(seed)}
    except Exception as error:
        return {**place, "error": f"{type(error).__name__}: {error}"[:300]}


def read(file: Path | None, study: str, label: str) -> list[Record]:
    """Runs of a file, the last one of each that ended; a line that a kill has cut is left out."""
    if file is None or not file.is_file():
        return []
    known = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            continue
        if "error" not in record and (record["study"], record["label"]) == (study, label):
            known[place_of(record)] = record
    return list(known.values())


def place_of(record: Record) -> tuple[str, int]:
    return record["design"], record["seed"]


def write(file: Path, record: Record) -> None:
    """Append a line, after one that was cut as well."""
    cut = file.is_file() and file.stat().st_size and not file.read_bytes().endswith(b"\n")
    with file.open("a", encoding="utf-8") as stream:
        stream.write("\n" * bool(cut) + json.dumps(record) + "\n")


def run_study(name: str, args: argparse.Namespace) -> tuple[list[Record], list[Case]]:
    """Runs that were in the file and those that were not, in the order of cases and seeds."""
    cases = [case for case in STUDIES[name].cases(args) if case.design.startswith(tuple(args.only))]
    runs = STUDIES[name].runs if args.runs is None else args.runs
    places = {case.design: k for k, case in enumerate(cases)}
    records = [one for one in read(args.out, name, args.label) if one["design"] in places]
    ended = {place_of(one) for one in records}
    seeds = range(args.seed, args.seed + runs)
    missing = [(case, seed) for seed in seeds for case in cases if (case.design, seed) not in ended]
    jobs = (delayed(one_run)(name, case, args.label, seed) for case, seed in missing)
    failed: Counter[str] = Counter()
    for record in Parallel(n_jobs=args.jobs, return_as="generator_unordered", batch_size=1)(jobs):
        if args.out:
            write(args.out, record)
        if "error" in record:
            failed[f"{record['design']}: {record['error']}"] += 1
        else:
            records.append(record)
    for reason, count in failed.items():
        print(f"{count} runs failed: {reason}\n")
    return sorted(records, key=lambda one: (places[one["design"]], one["seed"])), cases


def show(name: str, args: argparse.Namespace) -> None:
    records, cases = run_study(name, args)
    seeds = sorted({one["seed"] for one in records})
    which = f"seeds {seeds[0]}-{seeds[-1]}" if seeds else "no runs"
    print(f"## {name}\n\nmodifind {args.label}, {date.today().isoformat()}; {which}.\n")
    if not records:
        return
    print(STUDIES[name].table(records, {case.design: case.target for case in cases}))
    before = read(args.out, name, args.before) if args.before and STUDIES[name].table is not replication_table else []
    if before:
        print(f"\nThe default of {args.before} and of {args.label}:\n\n{versions_table(records, before)}")
    print(flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--study", nargs="+", choices=STUDIES, default=list(STUDIES))
    parser.add_argument("--runs", type=int, help="of each design; by default what the study has in `STUDIES`")
    parser.add_argument("--seed", type=int, default=0, help="first seed; 1000 and above are for final figures")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time")
    parser.add_argument("--only", nargs="+", default=[""], help="designs whose names begin with one of these")
    parser.add_argument("--out", type=Path, help="a file of JSON lines, which runs are added to and taken from")
    parser.add_argument("--label", default=__version__, help="of the version that is run, in the file")
    parser.add_argument("--before", help="a label in the file, to compare with")
    parser.add_argument("--rows", type=int, help="of a table (placebo, 3000) or of a half (halves, 6000) at most")
    parser.add_argument("--outcomes", choices=("first", "all"), default="first", help="of tables of the atlas")
    args = parser.parse_args(arguments)
    print(f"    {shlex.join(['python', 'benchmarks/by_hand.py', *(arguments or sys.argv[1:])])}\n")
    for name in args.study:
        show(name, args)


if __name__ == "__main__":
    main()
