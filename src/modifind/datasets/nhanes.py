"""Obesity and inflammation in NHANES 2007-2010: CDC's published tables combined into one for analysis."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils import Bunch

from modifind.result.files import write_bytes

ADDRESS = "https://wwwn.cdc.gov/Nchs/Data/Nhanes/Public"
TIMEOUT_SECONDS = 60.0
FOLDER = "nhanes"

CYCLES = {"E": "2007-2008", "F": "2009-2010"}
VARIABLES = {
    "DEMO": (
        "RIDAGEYR", "INDFMPIR", "RIAGENDR", "RIDRETH1", "DMDMARTL", "DMDEDUC2", "WTMEC2YR", "SDMVPSU", "SDMVSTRA"
    ),
    "BMX": ("BMXBMI",),
    "CRP": ("LBXCRP",),
    "MCQ": (
        "MCQ010", "MCQ160A", "MCQ160N", "MCQ160E", "MCQ160F", "MCQ160G", "MCQ160M", "MCQ160K", "MCQ160L"
    ),
    "PAQ": ("PAQ605", "PAQ650"),
    "RHQ": ("RHD143", "RHQ540"),
    "SMQ": ("SMQ020", "SMQ040", "SMD641", "SMD650"),
}  # fmt: skip
TABLES = tuple(f"{table}_{cycle}" for cycle in CYCLES for table in VARIABLES)

NUMBERS = {"Y": "LBXCRP", "income": "INDFMPIR", "bmi": "BMXBMI", "WTMEC2YR": "WTMEC2YR"}
INTEGERS = {
    "age": "RIDAGEYR", "race": "RIDRETH1", "marital": "DMDMARTL", "education": "DMDEDUC2",
    "SDMVPSU": "SDMVPSU", "SDMVSTRA": "SDMVSTRA",
}  # fmt: skip
YES = {
    "vigorous_work": "PAQ605", "vigorous_recreation": "PAQ650", "ever_smoked": "SMQ020", "estrogen": "RHQ540",
    "asthma": "MCQ010", "arthritis": "MCQ160A", "gout": "MCQ160N", "heart_attack": "MCQ160E", "stroke": "MCQ160F",
    "emphysema": "MCQ160G", "thyroid": "MCQ160M", "bronchitis": "MCQ160K", "liver": "MCQ160L",
}  # fmt: skip
# 1 where the variable has the code; 0 for every other answer, refused, unknown and not asked included
INDICATORS = {"female": ("RIAGENDR", 2)} | {column: (variable, 1) for column, variable in YES.items()}
REFUSED_OR_UNKNOWN = (7, 9)
UNKNOWNS = {"dk_RHQ540": ("RHQ540",), "dk_any_mcq": VARIABLES["MCQ"], "dk_SMQ020": ("SMQ020",)}
CONTINUOUS = ("age", "income", "cigarettes_month")
DISCRETE = ("female", "race", "marital", "education", *YES)
EXTRAS = ("bmi", "cigarettes_day", "WTMEC2YR", "SDMVPSU", "SDMVSTRA", *UNKNOWNS)
COLUMNS = ("SEQN", "cycle", "A", "Y", *CONTINUOUS, *DISCRETE, *EXTRAS)
OVERWEIGHT = 25.0

# No variable above is published with more decimals; the sampling weights have six.
DECIMALS = 6
DIGESTS = {
    "DEMO_E": "dc684e54ace210cc1cd7b7774719f96128dc086833fc1f8450e86a5c0b7f0f03",
    "BMX_E": "d7cbb542eb381de021b8e0399e1f2b337ff21bced067c601833e6839f32633be",
    "CRP_E": "e338af983a8563293a40f3bb0e1c8df6266a97dc46702d5fa9798ebf397562d4",
    "MCQ_E": "a3e89f5d6caf1249c1115a0c586260844c315f661d790809d7394a24782a0168",
    "PAQ_E": "f1c54364803a5ad9ddb67d8181e488a9e922710517417ce72be883f841ae19a4",
    "RHQ_E": "b5323a13bcdfe43c3c75e383a6af1db3356cac27e57e91e14d09f27674ce577f",
    "SMQ_E": "e1a31a0ba1e4b29e1f50eda1fc95734ec5f184608453d87cdaa36602c6df1737",
    "DEMO_F": "5d54da98b441cc01a89d174b7ce1fc0e01000888d77b8468e811c722d18cda62",
    "BMX_F": "444f187df15c80a41507428d30296538276b78acbb51742fa5be5d4ea56ba610",
    "CRP_F": "31496ea5eaf636232f0011070c5c878b556a2c5946e20bf890c0f8ce85ef477b",
    "MCQ_F": "d74a45097c521fbd60a92137aceb193be61e9af204186de0cc21790661eddcf0",
    "PAQ_F": "731a96f8ccd715e3ef31fc57c6bb77688b10f1abffaf8b659fbf41e90b384e69",
    "RHQ_F": "f14dc483cddcb330a957ad82f9efb817fdee68a1b79702e6001ba89b31616c0f",
    "SMQ_F": "f42f0c067c6d9bf7bd7b41c96e95f497d1a5c6197edebca8e4523e60951e3ea9",
}


def _smokes(raw: pd.DataFrame) -> pd.Series[bool]:
    return raw["SMQ040"].isin((1, 2))


def _cigarettes_known(raw: pd.DataFrame) -> pd.Series[bool]:
    # Days 77 and 99 and counts 777 and 999 are refused and unknown; 95 stands for 95 or more. Smokers of no day in
    # the month were not asked how many a day, and count as unknown.
    return raw["SMD641"].between(0, 30) & raw["SMD650"].between(1, 95)


# Who stays, in this order. A missing value passes `ne`, for those who were not asked, and no other comparison.
STEPS: dict[str, Callable[[pd.DataFrame], pd.Series[bool]]] = {
    "age 21 or more": lambda raw: raw["RIDAGEYR"] >= 21,
    "not pregnant": lambda raw: raw["RHD143"].ne(1),
    "body mass index known": lambda raw: raw["BMXBMI"].notna(),
    "CRP known": lambda raw: raw["LBXCRP"].notna(),
    "income known": lambda raw: raw["INDFMPIR"].notna(),
    "marital status known": lambda raw: raw["DMDMARTL"].between(1, 6),
    "education known": lambda raw: raw["DMDEDUC2"].between(1, 5),
    "vigorous recreation known": lambda raw: raw["PAQ650"].isin((1, 2)),
    "cigarettes of smokers known": lambda raw: ~_smokes(raw) | _cigarettes_known(raw),
}


def build_nhanes_crp(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Combine 14 NHANES tables into the table of obesity and C-reactive protein.

    Adults aged 21 or older who are not pregnant and have complete measurements and answers. Yes-or-no answers are 1 for
    yes and 0 otherwise, including refused and unknown; the columns `dk_*` mark those.

    Parameters
    ----------
    tables : mapping of str to DataFrame
        DEMO, BMX, CRP, MCQ, PAQ, RHQ and SMQ of 2007-2008 (`DEMO_E`, ...) and of 2009-2010 (`DEMO_F`, ...), as CDC
        publishes them. `pandas.read_sas` reads the files; its tiny numbers in place of zero are corrected here, as
        values are rounded to six decimals.

    Returns
    -------
    DataFrame
        One row per person, ordered by SEQN. `A` is 1 if the body mass index is above 25; `Y` is serum CRP in mg/dL;
        20 features follow (`age` to `liver`); then body mass index, cigarettes a day, the survey's weight, sampling
        unit and stratum, and the `dk_*` marks. ``attrs["rows_after"]`` has the number of people left after each step
        of the selection.

    Notes
    -----
    The last steps were chosen so that 9677 people remain; other ways to treat refused and unknown answers give the same
    number. Without the people that a `dk_*` column marks, 9531 remain.

    Examples
    --------
    Two people, one in each survey, whose every answer is 2 unless it is given here:

    >>> import pandas as pd
    >>> from modifind.datasets.nhanes import VARIABLES
    >>> given = {"RIDAGEYR": 44, "BMXBMI": 31.0}
    >>> tables = {
    ...     f"{name}_{cycle}": pd.DataFrame([{"SEQN": person} | {v: given.get(v, 2) for v in variables}])
    ...     for person, cycle in enumerate("EF")
    ...     for name, variables in VARIABLES.items()
    ... }
    >>> frame = build_nhanes_crp(tables)
    >>> frame[["SEQN", "cycle", "A", "Y", "age", "cigarettes_month", "female", "gout"]]
       SEQN      cycle  A    Y  age  cigarettes_month  female  gout
    0     0  2007-2008  1  2.0   44               4.0       1     0
    1     1  2009-2010  1  2.0   44               4.0       1     0
    >>> frame.attrs["rows_after"]["not pregnant"]
    2
    """
    _refuse_missing(tables)
    raw = pd.concat([_joined(tables, cycle) for cycle in CYCLES])
    if not raw.index.is_unique:
        repeated = raw.index[raw.index.duplicated()]
        raise ValueError(
            f"{len(repeated)} people are in both surveys (SEQN {repeated[0]}, ...); pass each survey's own DEMO table"
        )
    rows_after = {"all": len(raw)}
    for step, stays in STEPS.items():
        raw = raw[stays(raw)]
        rows_after[step] = len(raw)
    smokes = _smokes(raw)
    made = {
        "SEQN": raw.index.to_series(),
        "cycle": raw["cycle"],
        "A": (raw["BMXBMI"] > OVERWEIGHT).astype(np.int64),
        "cigarettes_month": (raw["SMD641"] * raw["SMD650"]).where(smokes, 0.0),
        "cigarettes_day": raw["SMD650"].where(smokes, 0.0),
        **{column: raw[variable] for column, variable in NUMBERS.items()},
        **{column: raw[variable].astype(np.int64) for column, variable in INTEGERS.items()},
        **{column: raw[variable].eq(code).astype(np.int64) for column, (variable, code) in INDICATORS.items()},
        **{
            column: raw[list(variables)].isin(REFUSED_OR_UNKNOWN).any(axis=1).astype(np.int64)
            for column, variables in UNKNOWNS.items()
        },
    }
    frame = pd.DataFrame(made)[list(COLUMNS)].reset_index(drop=True)
    frame.attrs["rows_after"] = rows_after
    return frame


def fetch_nhanes_crp(data_home: str | os.PathLike[str] | None = None, *, download: bool = True) -> Bunch:
    """Obesity and C-reactive protein of 9677 American adults (NHANES 2007-2010), from CDC or from a folder.

    The 14 files are searched for in `data_home` and in its subfolder `nhanes`, as ``DEMO_E.XPT`` (CDC's SAS transport
    files, in any case), ``DEMO_E.csv`` or ``DEMO_E.csv.xz``. Missing files are downloaded into the subfolder. Every
    table's values are compared with a SHA-256 digest, which is the same for each format.

    Parameters
    ----------
    data_home : path, optional
        The folder. Without it that of the environment variable ``MODIFIND_DATA``, else ``~/.cache/modifind``.
    download : bool, default=True
        False never goes to the network.

    Returns
    -------
    Bunch
        `X` (20 features), `treatment` (1 if the body mass index is above 25), `y` (serum CRP, mg/dL),
        `discrete_features` and `continuous_features` (names), `rows_after` (people left after each step of the
        selection) and `frame`, the whole table of `build_nhanes_crp`, with the survey's weights.

    Raises
    ------
    OSError
        If tables are missing and were not to be, or could not be, downloaded. The message lists the addresses.
    ValueError
        If a file is not the table expected. A download that is not is never kept.

    Notes
    -----
    NHANES is in the public domain in the United States (CDC, National Center for Health Statistics). Each digest
    covers the variables used here: their names joined by commas and a newline, then the rows in order of SEQN as
    little-endian doubles rounded to six decimals, the bytes ``000000000000f87f`` for a missing value.

    Examples
    --------
    >>> data = fetch_nhanes_crp()  # doctest: +SKIP
    >>> data.X.shape, len(data.discrete_features)  # doctest: +SKIP
    ((9677, 20), 17)
    """
    home = _data_home(data_home)
    files = _find_files(home)
    tables = {name: _read_file(name, path) for name, path in files.items()}
    tables |= _obtain([name for name in TABLES if name not in files], home / FOLDER, download)
    frame = build_nhanes_crp(tables)
    return Bunch(
        X=frame[[*CONTINUOUS, *DISCRETE]],
        treatment=frame["A"],
        y=frame["Y"],
        discrete_features=list(DISCRETE),
        continuous_features=list(CONTINUOUS),
        rows_after=dict(frame.attrs["rows_after"]),
        frame=frame,
    )


def _refuse_missing(tables: Mapping[str, pd.DataFrame]) -> None:
    absent = [name for name in TABLES if name not in tables]
    problems = [f"no table {', '.join(absent)}"] if absent else []
    for name in TABLES:
        lacking = _lacking(name, tables[name]) if name in tables else []
        problems += [f"{name} has no column {', '.join(lacking)}"] if lacking else []
    if problems:
        raise ValueError(f"{'; '.join(problems)}. Pass the NHANES tables whole, as CDC publishes them")


def _used(name: str) -> list[str]:
    return ["SEQN", *VARIABLES[name.split("_")[0]]]


def _lacking(name: str, table: pd.DataFrame) -> list[str]:
    return [column for column in _used(name) if column not in table.columns]


def _joined(tables: Mapping[str, pd.DataFrame], cycle: str) -> pd.DataFrame:
    """All variables of one survey, one row per person of DEMO; variables not collected for a person are missing."""
    demo, *others = (_canonical(name, tables[name]).set_index("SEQN") for name in TABLES if name.endswith(cycle))
    for other in others:
        demo = demo.join(other)
    return demo.set_index(demo.index.astype(np.int64)).assign(cycle=CYCLES[cycle])


def _canonical(name: str, table: pd.DataFrame) -> pd.DataFrame:
    """The variables used, sorted by SEQN, bit for bit equal whether read from CSV or a transport file.

    Rounding removes both the last bits in which IBM's floats differ and the 5.4e-79 that pandas reads for a zero.
    """
    used = table[_used(name)]
    text = [column for column in used.columns if not pd.api.types.is_numeric_dtype(used[column])]
    if text and len(used):
        raise ValueError(f"{name}: {', '.join(text)} must be numbers, found {used[text[0]].iloc[0]!r}")
    values = used.to_numpy(dtype=np.float64, na_value=np.nan)
    with np.errstate(over="ignore", invalid="ignore"):  # only a damaged file has numbers that large
        values = values.round(DECIMALS) + 0.0  # -0.0 becomes 0.0
    values[np.isnan(values)] = np.nan  # one bit pattern for all
    people = values[:, 0]
    if not np.isfinite(people).all() or np.unique(people).size < people.size:
        raise ValueError(f"{name}: SEQN must be known and differ from row to row")
    return pd.DataFrame(values[np.argsort(people)], columns=used.columns)


def _digest(table: pd.DataFrame) -> str:
    """SHA-256 of a canonical table."""
    header = ",".join(table.columns) + "\n"
    return hashlib.sha256(header.encode() + table.to_numpy().astype("<f8").tobytes()).hexdigest()


def _data_home(data_home: str | os.PathLike[str] | None) -> Path:
    if data_home is not None:
        return Path(data_home).expanduser()
    if os.environ.get("MODIFIND_DATA"):
        return Path(os.environ["MODIFIND_DATA"]).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "modifind"


def _find_files(home: Path) -> dict[str, Path]:
    """Path of each table: subfolder before folder, transport files before CSV."""
    files: dict[str, Path] = {}
    for folder in (home / FOLDER, home):
        if not folder.is_dir():
            continue
        by_lower = {path.name.lower(): path for path in sorted(folder.iterdir())}
        for name in TABLES:
            for suffix in (".xpt", ".csv", ".csv.xz"):
                if f"{name.lower()}{suffix}" in by_lower:
                    files.setdefault(name, by_lower[f"{name.lower()}{suffix}"])
    return files


def _read_file(name: str, path: Path) -> pd.DataFrame:
    content = path.read_bytes()
    try:
        return _parse(name, content, path.name.lower().removeprefix(name.lower()))
    except ValueError as error:
        raise ValueError(f"{path} is not the table expected: {error}. Delete it and fetch again") from error


def _parse(name: str, content: bytes, suffix: str) -> pd.DataFrame:
    """The canonical table in a file's bytes; raises a ValueError that says why it is not the expected one."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # pandas warns of damage that is refused below
            if suffix == ".xpt":
                table = pd.read_sas(BytesIO(content), format="xport", encoding="latin-1")
            else:
                wanted = set(_used(name))
                compression: Any = "xz" if suffix.endswith(".xz") else None
                table = pd.read_csv(BytesIO(content), compression=compression, usecols=lambda column: column in wanted)
    except Exception as error:  # damaged bytes make the parsers raise anything from struct.error to StopIteration
        raise ValueError(f"it cannot be read ({type(error).__name__}: {error})") from error
    lacking = _lacking(name, table)
    if lacking:
        raise ValueError(f"it has no column {', '.join(lacking)}")
    table = _canonical(name, table)
    digest = _digest(table)
    if digest != DIGESTS[name]:
        raise ValueError(f"its values differ (SHA-256 {digest}, not {DIGESTS[name]}; {len(table)} rows)")
    return table


def _address(name: str) -> str:
    return f"{ADDRESS}/{CYCLES[name[-1]][:4]}/DataFiles/{name}.XPT"


def _obtain(missing: list[str], folder: Path, download: bool) -> dict[str, pd.DataFrame]:
    """Download missing files, keeping each verified one at once so that a retry continues."""
    tables: dict[str, pd.DataFrame] = {}
    if missing and not download:
        raise OSError(_how_to_get(missing, folder, "download=False"))
    for position, name in enumerate(missing):
        folder.mkdir(parents=True, exist_ok=True)
        try:
            content = _download(_address(name))
        except OSError as error:
            raise OSError(_how_to_get(missing[position:], folder, str(error))) from error
        try:
            tables[name] = _parse(name, content, ".xpt")
        except ValueError as error:
            raise ValueError(
                f"{_address(name)} gave another file than expected, which was not kept: {error}. Fetch again; if it "
                "stays so, CDC has changed the table: read the files with pandas.read_sas and call build_nhanes_crp"
            ) from error
        write_bytes(folder / f"{name}.XPT", content)
    return tables


def _download(address: str) -> bytes:
    # slow to import, and seldom needed
    from http.client import HTTPException
    from urllib.request import Request, urlopen

    try:
        with urlopen(Request(address, headers={"User-Agent": "modifind"}), timeout=TIMEOUT_SECONDS) as response:
            content: bytes = response.read()
    except HTTPException as error:  # a connection that ends too early is no OSError by itself
        raise OSError(f"{type(error).__name__}: {error}") from error
    return content


def _how_to_get(missing: list[str], folder: Path, reason: str) -> str:
    listing = "\n".join(f"  {_address(name)}" for name in missing)
    return f"NHANES tables are missing ({reason}). Put these files into {folder}:\n{listing}"
