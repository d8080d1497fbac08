import os
import threading
import warnings
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal, assert_series_equal

from conftest import ROOT
from modifind.data.schema import read_features
from modifind.datasets import build_nhanes_crp, fetch_nhanes_crp, nhanes
from xport import xport_bytes

PUBLISHED = ROOT.parent / "shared" / "data"
needs_published = pytest.mark.skipif(
    not (PUBLISHED / "nhanes_crp.csv").is_file(), reason="the NHANES tables are not beside the repository"
)
NAN = float("nan")
PERSON = {
    "RIDAGEYR": 44, "INDFMPIR": 2.5, "RIAGENDR": 2, "RIDRETH1": 3, "DMDMARTL": 1, "DMDEDUC2": 4,
    "WTMEC2YR": 1234.567891, "SDMVPSU": 1, "SDMVSTRA": 60, "BMXBMI": 31.0, "LBXCRP": 0.16, "RHD143": NAN, "RHQ540": 2,
    "SMQ020": 2, "SMQ040": NAN, "SMD641": NAN, "SMD650": NAN,
    **dict.fromkeys(["PAQ605", "PAQ650", *nhanes.VARIABLES["MCQ"]], 2),
}  # fmt: skip
SMOKER = {"SMQ020": 1, "SMQ040": 1, "SMD641": 30, "SMD650": 20}


def tables_of(*people):
    """Raw tables whose first survey has these people and whose second has nobody."""
    everybody = pd.DataFrame([{"SEQN": number} | PERSON | person for number, person in enumerate(people, start=1)])
    return {
        f"{name}_{cycle}": everybody.loc[everybody["SEQN"] > (cycle == "F") * len(people), ["SEQN", *variables]]
        for cycle in nhanes.CYCLES
        for name, variables in nhanes.VARIABLES.items()
    }


def synthetic_survey(rng, cycle, first, n=300):
    """Raw tables with every code that the real ones have, some columns nobody needs, and people missing from some."""
    age = rng.integers(0, 81, n)
    adult, female = age >= 20, rng.random(n) < 0.5

    def answers(codes, shares, asked=adult):
        return np.where(asked, rng.choice(codes, n, p=np.array(shares) / np.sum(shares)), NAN)

    def yes_no(asked=adult):
        return answers([1, 2, 7, 9], [20, 76, 1, 3], asked)

    ever = yes_no()
    now = answers([1, 2, 3, 7], [40, 10, 48, 2], ever == 1)
    days = answers([0, 5, 30, 77, 99], [3, 15, 76, 3, 3], np.isin(now, (1, 2)))
    values = {
        "RIDAGEYR": age,
        "INDFMPIR": np.where(rng.random(n) < 0.1, NAN, rng.choice([0.0, 5.0, *rng.random(20).round(2)], n)),
        "RIAGENDR": 1 + female,
        "RIDRETH1": rng.integers(1, 6, n),
        "DMDMARTL": answers([1, 2, 3, 4, 5, 6, 77, 99], [50, 10, 10, 5, 10, 10, 3, 2]),
        "DMDEDUC2": answers([1, 2, 3, 4, 5, 7, 9], [10, 15, 25, 25, 20, 2, 3]),
        "WTMEC2YR": rng.uniform(0, 2e5, n).round(6) * (rng.random(n) < 0.95),
        "SDMVPSU": rng.integers(1, 4, n),
        "SDMVSTRA": rng.integers(59, 90, n),
        "BMXBMI": np.where(rng.random(n) < 0.05, NAN, rng.uniform(13, 60, n).round(2)),
        "LBXCRP": np.where(rng.random(n) < 0.05, NAN, rng.exponential(0.4, n).round(2) + 0.01),
        **{variable: yes_no() for variable in nhanes.VARIABLES["MCQ"]},
        "PAQ605": yes_no(),
        "PAQ650": yes_no(),
        "RHD143": answers([1, 2, 9], [20, 75, 5], adult & female & (age < 45)),
        "RHQ540": yes_no(adult & female),
        "SMQ020": ever,
        "SMQ040": now,
        "SMD641": days,
        "SMD650": answers([1, 10, 20, 95, 777, 999], [10, 35, 45, 4, 3, 3], days > 0),
    }
    everybody = pd.DataFrame({"SEQN": np.arange(first, first + n), **values})
    present = {"BMX": 0.96, "CRP": 0.9, "MCQ": 1.0, "PAQ": 1.0, "SMQ": adult, "RHQ": adult & female, "DEMO": 1.0}
    tables = {}
    for name, variables in nhanes.VARIABLES.items():
        table = everybody.loc[rng.random(n) < present[name], ["SEQN", *variables]].reset_index(drop=True)
        # CRP stays narrow, as it is; pandas loses the last rows of a narrow file in which text is blank.
        if name != "CRP":
            table = table.assign(**{f"OTHER{j}": rng.random(len(table)) for j in range(10)})
            table["BRAND"] = rng.choice(["", "menthol"], len(table))
        tables[f"{name}_{cycle}"] = table
    return tables


@pytest.fixture(scope="module")
def raw():
    rng = np.random.default_rng(0)
    return synthetic_survey(rng, "E", 41475) | synthetic_survey(rng, "F", 51624)


@pytest.fixture(scope="module")
def xpt(raw):
    return {name: xport_bytes(table, name) for name, table in raw.items()}


@pytest.fixture
def expected(raw, monkeypatch):
    """The synthetic tables pass for CDC's; what they make."""
    digests = {name: nhanes._digest(nhanes._canonical(name, table)) for name, table in raw.items()}
    monkeypatch.setattr(nhanes, "DIGESTS", digests)
    return build_nhanes_crp(raw)


class Server(ThreadingHTTPServer):
    """Serves `contents` by table; `requested` counts what was asked for, `cut` names answers that end too early."""

    daemon_threads = True

    def __init__(self, contents):
        super().__init__(("127.0.0.1", 0), Handler)
        self.contents, self.requested, self.cut, self.slow = dict(contents), Counter(), set(), threading.Event()
        self.slow.set()


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        year, folder, file = self.path.strip("/").split("/")
        name = file.removesuffix(".XPT")
        self.server.requested[name] += 1
        self.server.slow.wait(10)
        if folder != "DataFiles" or year != {"E": "2007", "F": "2009"}[name[-1]] or name not in self.server.contents:
            self.send_error(404)
            return
        content = self.server.contents[name]
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: len(content) // 2] if name in self.server.cut else content)

    def log_message(self, *_):
        pass


@pytest.fixture
def server(xpt, monkeypatch):
    server = Server(xpt)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(nhanes, "ADDRESS", f"http://127.0.0.1:{server.server_port}")
    yield server
    server.slow.set()
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(autouse=True)
def no_network(monkeypatch, tmp_path):
    """No test finds a cache of the user's, or reaches CDC."""
    monkeypatch.setattr(nhanes, "ADDRESS", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("MODIFIND_DATA", str(tmp_path / "home"))


def write_all(folder, contents, suffix=".XPT"):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        (folder / f"{name}{suffix}").write_bytes(content)
    return folder


def files_in(folder):
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


# The table made of the raw tables


@needs_published
def test_published_tables_give_the_published_rows():
    data = fetch_nhanes_crp(PUBLISHED / "nhanes_raw", download=False)
    assert_frame_equal(data.frame, pd.read_csv(PUBLISHED / "nhanes_crp.csv"), check_exact=True)
    counts = [20686, 11960, 11873, 11324, 10679, 9710, 9706, 9697, 9696, 9677]
    assert list(data.rows_after.values()) == counts


@needs_published
def test_published_tables_have_the_same_digests_as_transport_files(tmp_path):
    for name in nhanes.TABLES:
        table = pd.read_csv(PUBLISHED / "nhanes_raw" / f"{name}.csv.xz", keep_default_na=False, na_values=["NA"])
        (tmp_path / f"{name}.XPT").write_bytes(xport_bytes(table, name))
    data = fetch_nhanes_crp(tmp_path, download=False)
    assert_frame_equal(data.frame, pd.read_csv(PUBLISHED / "nhanes_crp.csv"), check_exact=True)


@pytest.mark.parametrize(
    ("answers", "step"),
    [
        ({}, None),
        ({"RIDAGEYR": 20}, "age 21 or more"),
        ({"RIDAGEYR": 21}, None),
        ({"RHD143": 1}, "not pregnant"),
        ({"RHD143": 2}, None),
        ({"RHD143": 9}, None),
        ({"BMXBMI": NAN}, "body mass index known"),
        ({"LBXCRP": NAN}, "CRP known"),
        ({"INDFMPIR": NAN}, "income known"),
        ({"INDFMPIR": 0.0}, None),
        ({"DMDMARTL": 6}, None),
        ({"DMDMARTL": 77}, "marital status known"),
        ({"DMDMARTL": 99}, "marital status known"),
        ({"DMDMARTL": NAN}, "marital status known"),
        ({"DMDEDUC2": 7}, "education known"),
        ({"DMDEDUC2": 9}, "education known"),
        ({"PAQ650": 7}, "vigorous recreation known"),
        ({"PAQ650": 9}, "vigorous recreation known"),
        ({"PAQ650": NAN}, "vigorous recreation known"),
        ({"PAQ605": 9}, None),
        (SMOKER, None),
        (SMOKER | {"SMQ040": 2, "SMD641": 1, "SMD650": 95}, None),
        (SMOKER | {"SMD641": 77}, "cigarettes of smokers known"),
        (SMOKER | {"SMD641": 99, "SMD650": NAN}, "cigarettes of smokers known"),
        (SMOKER | {"SMD641": 0, "SMD650": NAN}, "cigarettes of smokers known"),
        (SMOKER | {"SMD650": 777}, "cigarettes of smokers known"),
        (SMOKER | {"SMD650": 999}, "cigarettes of smokers known"),
        ({"SMQ020": 1, "SMQ040": 3}, None),
        ({"SMQ020": 1, "SMQ040": 7}, None),
        ({"SMQ020": 9}, None),
        (dict.fromkeys(nhanes.VARIABLES["MCQ"], 9), None),
    ],
)
def test_each_step_drops_whom_it_names(answers, step):
    frame = build_nhanes_crp(tables_of({}, answers))
    rows_after = pd.Series(frame.attrs["rows_after"])
    assert list(rows_after.index) == ["all", *nhanes.STEPS]
    lost = rows_after.index[rows_after.diff() < 0]
    assert list(lost) == ([] if step is None else [step])
    assert list(frame["SEQN"]) == ([1, 2] if step is None else [1])


def test_people_missing_from_a_table_count_as_not_asked():
    tables = tables_of({}, {}, {})
    tables["RHQ_E"] = tables["RHQ_E"].iloc[1:]
    tables["SMQ_E"] = tables["SMQ_E"].iloc[1:]
    tables["CRP_E"] = tables["CRP_E"].iloc[:2]
    frame = build_nhanes_crp(tables)
    assert list(frame["SEQN"]) == [1, 2]
    assert list(frame.loc[0, ["estrogen", "ever_smoked", "cigarettes_month", "dk_RHQ540"]]) == [0, 0, 0, 0]


@pytest.mark.parametrize(("bmi", "treated"), [(24.99, 0), (25.0, 0), (25.01, 1)])
def test_treated_are_those_above_25(bmi, treated):
    assert build_nhanes_crp(tables_of({"BMXBMI": bmi}))["A"].tolist() == [treated]


@pytest.mark.parametrize(
    ("column", "variable"), [(c, v) for c, (v, code) in nhanes.INDICATORS.items() if code == 1 and v != "PAQ650"]
)
def test_yes_is_1_and_all_else_0(column, variable):
    frame = build_nhanes_crp(tables_of(*({variable: code} for code in (1, 2, 7, 9, NAN))))
    assert frame[column].tolist() == [1, 0, 0, 0, 0]
    marks = [mark for mark, variables in nhanes.UNKNOWNS.items() if variable in variables]
    assert len(marks) == (0 if variable == "PAQ605" else 1)
    for mark in nhanes.UNKNOWNS:
        assert frame[mark].tolist() == ([0, 0, 1, 1, 0] if mark in marks else [0] * 5)


def test_values_of_the_other_columns():
    person = {"RIAGENDR": 1, "RIDRETH1": 5, "DMDMARTL": 6, "DMDEDUC2": 1, "PAQ650": 1, "INDFMPIR": 0.0}
    frame = build_nhanes_crp(tables_of(person | SMOKER | {"SMD641": 3, "SMD650": 7}))
    values = {
        "SEQN": 1, "cycle": "2007-2008", "A": 1, "Y": 0.16, "age": 44, "income": 0.0, "cigarettes_month": 21.0,
        "female": 0, "race": 5, "marital": 6, "education": 1, "vigorous_work": 0, "vigorous_recreation": 1,
        "ever_smoked": 1, **dict.fromkeys(nhanes.DISCRETE[7:], 0), "bmi": 31.0, "cigarettes_day": 7.0,
        "WTMEC2YR": 1234.567891, "SDMVPSU": 1, "SDMVSTRA": 60, **dict.fromkeys(nhanes.UNKNOWNS, 0),
    }  # fmt: skip
    assert_frame_equal(frame, pd.DataFrame([values]), check_exact=True)


@pytest.mark.parametrize("smoking", [{"SMQ040": 3}, {"SMQ040": 7}, {"SMQ040": NAN}])
def test_who_does_not_smoke_now_has_no_cigarettes(smoking):
    frame = build_nhanes_crp(tables_of(SMOKER | smoking))
    assert frame[["cigarettes_month", "cigarettes_day"]].to_numpy().tolist() == [[0.0, 0.0]]


def test_rows_are_ordered_by_person_and_survey_and_input_is_left_alone(raw):
    shuffled = {name: table.sample(frac=1.0, random_state=0) for name, table in raw.items()}
    copies = {name: table.copy() for name, table in shuffled.items()}
    frame = build_nhanes_crp(shuffled)
    assert_frame_equal(frame, build_nhanes_crp(raw), check_exact=True)
    assert frame["SEQN"].is_monotonic_increasing
    assert set(frame["cycle"]) == {"2007-2008", "2009-2010"}
    for name, table in shuffled.items():
        assert_frame_equal(table, copies[name])


def test_all_missing_tables_and_columns_are_named(raw):
    tables = {name: table for name, table in raw.items() if name not in ("CRP_F", "SMQ_E")}
    tables["DEMO_E"] = tables["DEMO_E"].drop(columns=["SEQN", "INDFMPIR"])
    tables["MCQ_F"] = tables["MCQ_F"].drop(columns="MCQ160L")
    with pytest.raises(ValueError) as error:
        build_nhanes_crp(tables)
    assert str(error.value).startswith(
        "no table SMQ_E, CRP_F; DEMO_E has no column SEQN, INDFMPIR; MCQ_F has no column MCQ160L. "
    )
    with pytest.raises(ValueError, match=r"no table DEMO_E, BMX_E, .*, SMQ_F"):
        build_nhanes_crp({})


def test_tables_that_cannot_be_joined_are_refused(raw):
    with pytest.raises(ValueError, match="BMX_E: SEQN must be known and differ"):
        build_nhanes_crp(raw | {"BMX_E": pd.concat([raw["BMX_E"], raw["BMX_E"].iloc[:1]])})
    with pytest.raises(ValueError, match=r"300 people are in both surveys \(SEQN 41475"):
        build_nhanes_crp(raw | {"DEMO_F": raw["DEMO_E"]})
    with pytest.raises(ValueError, match=r"PAQ_E: PAQ650 must be numbers, found 'yes'"):
        build_nhanes_crp(raw | {"PAQ_E": raw["PAQ_E"].assign(PAQ650="yes")})


# Files, transport or CSV


def test_transport_writer_is_understood_by_pandas():
    rng = np.random.default_rng(1)
    numbers = np.array([0.0, 1.0, -1.0, 0.1, NAN, 1e-5, -118.625, 192770.730057, 62160.0, *rng.normal(size=90)])
    table = pd.DataFrame({"SEQN": np.arange(99.0) + 1, "VALUE": numbers, "TEXT": ["", *["menthol", "x"] * 49]})
    back = pd.read_sas(BytesIO(xport_bytes(table)), format="xport", encoding="latin-1")
    assert list(back.columns) == ["SEQN", "VALUE", "TEXT"]
    assert back["TEXT"].tolist() == table["TEXT"].tolist()
    assert_series_equal(back["VALUE"], table["VALUE"], rtol=1e-15, atol=1e-70)
    # the fault that rounding is there for
    assert back["VALUE"][0] != 0.0


def test_raw_transport_tables_give_the_same_table(raw, xpt):
    read = {name: pd.read_sas(BytesIO(file), format="xport", encoding="latin-1") for name, file in xpt.items()}
    assert any((table == 0.0).to_numpy().any() for table in (raw["DEMO_E"], raw["SMQ_E"]))
    assert not any((table.select_dtypes("number") == 0.0).to_numpy().any() for table in read.values())
    assert_frame_equal(build_nhanes_crp(read), build_nhanes_crp(raw), check_exact=True)


def test_digest_covers_values_and_nothing_else(raw):
    table = raw["SMQ_E"]

    def digest(table):
        return nhanes._digest(nhanes._canonical("SMQ_E", table))

    same = [
        table.sample(frac=1.0, random_state=1),
        table.drop(columns="BRAND"),
        table[table.columns[::-1]],
        table.assign(SMD641=table["SMD641"] * (1 + 2e-16)),
        table.assign(SMD641=table["SMD641"].where(table["SMD641"] != 0, -5.4e-79)),
    ]
    assert {digest(other) for other in same} == {digest(table)}
    changed = table.copy()
    changed.loc[0, "SMQ020"] = 8
    others = [
        changed,
        table.iloc[1:],
        table.fillna(0.0),
        table.rename(columns={"SMQ020": "SMQ040", "SMQ040": "SMQ020"}),
    ]
    assert len({digest(other) for other in [table, *others]}) == 1 + len(others)


@pytest.mark.parametrize("subfolder", ["", "nhanes"])
@pytest.mark.parametrize("form", [".XPT", ".xpt", ".csv", ".csv.xz"])
def test_files_of_each_form_are_found_without_a_warning(raw, xpt, expected, tmp_path, form, subfolder):
    folder = tmp_path / subfolder
    if form.lower() == ".xpt":
        write_all(folder, xpt, form)
    else:
        folder.mkdir(exist_ok=True)
        for name, table in raw.items():
            table.to_csv(folder / f"{name}{form}", index=False, na_rep="NA")
    before = files_in(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        data = fetch_nhanes_crp(tmp_path, download=False)
    assert_frame_equal(data.frame, expected, check_exact=True)
    assert files_in(tmp_path) == before


def test_bunch_has_what_a_fit_needs(xpt, expected, tmp_path):
    data = fetch_nhanes_crp(write_all(tmp_path, xpt))
    assert list(data.X.columns) == list(expected.columns[4:24])
    assert len(data.discrete_features) == 17
    assert data.continuous_features == ["age", "income", "cigarettes_month"]
    assert_series_equal(data.treatment, expected["A"])
    assert_series_equal(data.y, expected["Y"])
    assert data.rows_after == expected.attrs["rows_after"]
    table = read_features(data.X, data.discrete_features)
    kinds = [table.kind(j) for j in range(20)]
    assert kinds == ["continuous"] * 3 + ["discrete"] * 17


def test_folder_comes_from_argument_environment_or_home(monkeypatch, tmp_path):
    assert nhanes._data_home(tmp_path) == tmp_path
    assert nhanes._data_home(None) == tmp_path / "home"
    monkeypatch.delenv("MODIFIND_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert nhanes._data_home(None) == tmp_path / "cache" / "modifind"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert nhanes._data_home(None) == Path("~/.cache/modifind").expanduser()


def changed_value(content):
    table = pd.read_sas(BytesIO(content), format="xport", encoding="latin-1")
    table.loc[3, "LBXCRP"] = 0.5 if table.loc[3, "LBXCRP"] != 0.5 else 0.6
    return xport_bytes(table)


BAD = {
    "changed": (changed_value, "its values differ"),
    "cut between records": (lambda content: content[:-800], "its values differ"),
    "cut within a record": (lambda content: content[:-811], "its values differ"),
    "cut in the header": (lambda content: content[:700], "cannot be read"),
    "empty": (lambda content: b"", "cannot be read"),
    "web page": (lambda content: b"<!DOCTYPE html><html>Page not found</html>" * 40, "cannot be read"),
    "other table": (lambda content: xport_bytes(pd.DataFrame({"SEQN": [1.0], "X": [2.0]})), "no column LBXCRP"),
}


@pytest.mark.parametrize("damage", BAD)
@pytest.mark.filterwarnings("error")
def test_damaged_file_is_refused(xpt, expected, server, tmp_path, damage):
    spoil, found = BAD[damage]
    write_all(tmp_path, xpt | {"CRP_F": spoil(xpt["CRP_F"])})
    with pytest.raises(
        ValueError, match=rf"CRP_F\.XPT is not the table expected: .*{found}.*Delete it and fetch again"
    ):
        fetch_nhanes_crp(tmp_path)
    assert not server.requested


@pytest.mark.parametrize("suffix", [".csv", ".csv.xz"])
def test_damaged_csv_is_refused(xpt, expected, tmp_path, suffix):
    files = {name: content for name, content in xpt.items() if name != "CRP_F"}
    write_all(tmp_path, files)
    (tmp_path / f"CRP_F{suffix}").write_bytes(b'"SEQN","LBXCRP"\n51624,0.16\n')
    with pytest.raises(ValueError, match=rf"CRP_F{suffix} is not the table expected: .*Delete it"):
        fetch_nhanes_crp(tmp_path)


# Downloads


def test_download_fills_the_folder_and_is_made_once(xpt, expected, server, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        data = fetch_nhanes_crp()
    assert_frame_equal(data.frame, expected, check_exact=True)
    assert server.requested == Counter(nhanes.TABLES)
    folder = tmp_path / "home" / "nhanes"
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {f"{t}.XPT": xpt[t] for t in xpt}
    assert_frame_equal(fetch_nhanes_crp().frame, expected, check_exact=True)
    assert server.requested == Counter(nhanes.TABLES)


def test_only_missing_files_are_fetched(raw, xpt, expected, server, tmp_path):
    write_all(tmp_path / "nhanes", {name: xpt[name] for name in list(xpt)[:5]})
    raw["SMQ_F"].to_csv(tmp_path / "SMQ_F.csv", index=False)
    assert_frame_equal(fetch_nhanes_crp(tmp_path).frame, expected, check_exact=True)
    assert server.requested == Counter(set(nhanes.TABLES) - set(list(xpt)[:5]) - {"SMQ_F"})
    assert not (tmp_path / "nhanes" / "SMQ_F.XPT").exists()


@pytest.mark.parametrize("damage", BAD)
@pytest.mark.filterwarnings("error")
def test_damaged_download_is_not_kept(xpt, expected, server, tmp_path, damage):
    spoil, found = BAD[damage]
    server.contents["CRP_E"] = spoil(xpt["CRP_E"])
    with pytest.raises(ValueError, match=rf"2007/DataFiles/CRP_E\.XPT gave .* not kept: .*{found}.*Fetch again"):
        fetch_nhanes_crp(tmp_path)
    assert files_in(tmp_path) == ["BMX_E.XPT", "DEMO_E.XPT"]
    server.contents["CRP_E"] = xpt["CRP_E"]
    assert_frame_equal(fetch_nhanes_crp(tmp_path).frame, expected, check_exact=True)
    assert server.requested == Counter([*nhanes.TABLES, "CRP_E"])


def spoil_connection(server, monkeypatch, way):
    if way == "404":
        del server.contents["MCQ_E"]
    elif way == "cut":
        server.cut.add("MCQ_E")
    elif way == "timeout":
        server.slow.clear()
        monkeypatch.setattr(nhanes, "TIMEOUT_SECONDS", 0.2)
    else:
        monkeypatch.setattr(nhanes, "ADDRESS", f"http://{way}")


@pytest.mark.parametrize(
    ("way", "kept", "reason"),
    [
        ("404", 3, "HTTP Error 404"),
        ("cut", 3, "IncompleteRead"),
        ("timeout", 0, "timed out"),
        ("127.0.0.1:9", 0, "refused"),
        ("no-such-host.invalid", 0, "urlopen error"),
    ],
)
def test_failed_download_lists_what_to_get_and_where_to_put_it(
    expected, server, monkeypatch, tmp_path, way, kept, reason
):
    spoil_connection(server, monkeypatch, way)
    with pytest.raises(OSError, match="NHANES tables are missing") as error:
        fetch_nhanes_crp(tmp_path)
    message = str(error.value)
    assert reason in message.splitlines()[0]
    assert f"Put these files into {tmp_path / 'nhanes'}:" in message
    missing = [line.strip() for line in message.splitlines()[1:]]
    years = {"E": 2007, "F": 2009}
    assert missing == [f"{nhanes.ADDRESS}/{years[t[-1]]}/DataFiles/{t}.XPT" for t in nhanes.TABLES[kept:]]
    assert files_in(tmp_path) == sorted(f"{name}.XPT" for name in nhanes.TABLES[:kept])


def test_without_download_nothing_is_asked_or_made(xpt, expected, server, tmp_path):
    with pytest.raises(OSError, match=r"missing \(download=False\)") as error:
        fetch_nhanes_crp(tmp_path / "absent", download=False)
    assert all(f"/DataFiles/{name}.XPT" in str(error.value) for name in nhanes.TABLES)
    assert not server.requested
    assert os.listdir(tmp_path) == []


def test_address_is_that_of_cdc():
    # The constant itself: the other tests replace it.
    assert 'ADDRESS = "https://wwwn.cdc.gov/Nchs/Data/Nhanes/Public"\n' in Path(nhanes.__file__).read_text(
        encoding="utf-8"
    )


def test_every_table_has_a_digest():
    assert set(nhanes.DIGESTS) == set(nhanes.TABLES)
    assert {len(bytes.fromhex(digest)) for digest in nhanes.DIGESTS.values()} == {32}
