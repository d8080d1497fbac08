"""Several rows of each person, without clusters."""

import numpy as np
import pandas as pd
import pytest

from modifind import EffectLikelihood, ModifierSelector
from modifind.data.repeated_rows import find_copied, find_repeated
from modifind.data.roles import assign_roles
from modifind.data.schema import read_features
from modifind.data.words import is_person_name

FAST = {"statistic": EffectLikelihood("linear"), "sampler": "gaussian", "propensity": 0.5, "random_state": 0}


def people(n, seed=0):
    """What is measured once."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": rng.normal(50, 12, n).round(),
            "bmi": rng.normal(27, 4, n).round(1),
            "sex": rng.choice(["f", "m"], n),
            "region": rng.choice(list("abcd"), n),
        }
    )


def visits(counts, seed=0):
    """Rows of people who came so often, in any order, with what is measured each time."""
    rng = np.random.default_rng(seed)
    person = rng.permutation(np.repeat(np.arange(len(counts)), counts))
    table = people(len(counts), seed).iloc[person].reset_index(drop=True)
    return table.assign(lab=rng.normal(size=len(person)).round(2), pain=rng.integers(0, 11, len(person))), person


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("each", [2, 4, "1 to 6"])
def test_visits_of_a_person_are_found(seed, each):
    counts = np.random.default_rng(seed).integers(1, 7, 100) if each == "1 to 6" else np.full(100, each)
    found = find_repeated(read_features(visits(counts, seed)[0]))
    assert {"age", "bmi"} <= set(found.columns)
    assert "lab" not in found.columns
    assert found.pairs > 3 * found.expected


def test_copies_of_every_row_are_found():
    table = pd.concat([people(150)] * 3, ignore_index=True)
    assert find_repeated(read_features(table)).n_rows > 400


def test_copies_of_rows_of_few_categories_are_found_by_their_outcome():
    rng = np.random.default_rng(0)
    y, table = rng.normal(size=300).round(2), small(300, rng)
    assert find_copied(read_features(table), y) is None
    assert find_repeated(read_features(pd.concat([table[:100]] * 3))) is None
    assert find_copied(read_features(pd.concat([table[:100]] * 3)), np.tile(y[:100], 3)).n_rows > 250


def test_rows_of_a_person_are_found_in_a_part_of_a_table():
    """Of a longer table a sample is at hand: here every tenth row, of 3,000 people with four rows each."""
    table, _ = visits(np.full(3000, 4))
    sample = read_features(table[::10])
    assert find_repeated(sample, share=0.1) is not None


def small(n, rng):
    return pd.DataFrame({"sex": rng.choice(["f", "m"], n), "arm": rng.integers(0, 2, n), "site": rng.integers(0, 3, n)})


def derived(n, rng):
    weight, height = rng.normal(80, 12, n).round(), rng.normal(170, 9, n).round()
    bmi, area = (weight / (height / 100) ** 2).round(1), np.sqrt(height * weight / 3600).round(2)
    age = rng.normal(50, 12, n).round()
    table = {"weight": weight, "height": height, "bmi": bmi, "area": area, "age": age, "decade": age // 10}
    return pd.DataFrame(table).assign(senior=age > 65)


def rounded_by_some(n, rng):
    """Who rounds one answer rounds all."""
    rough = rng.random(n) < 0.5

    def told(values, step):
        return np.where(rough, np.round(values / step) * step, values.round())

    table = {"age": told(rng.normal(50, 12, n), 5), "weight": told(rng.normal(80, 12, n), 5)}
    return pd.DataFrame(table).assign(height=told(rng.normal(170, 9, n), 10), income=told(rng.gamma(2, 200, n), 50))


def often_zero(n, rng):
    nothing, size = rng.random(n) < 0.5, rng.normal(size=n)
    earned = (np.where(nothing, 0, np.exp(8 + 0.5 * (size + rng.normal(size=n)))).round() for _ in range(2))
    return pd.DataFrame(dict(zip(("re74", "re75"), earned, strict=True))).assign(age=rng.integers(18, 55, n))


def usual_and_most(n, rng):
    usual = rng.gamma(1, 8, n).round()
    return pd.DataFrame({"usual": usual, "most": usual + (rng.random(n) < 0.6) * rng.gamma(1, 8, n).round()})


def scores(n, rng):
    items = np.clip(np.round(2 + rng.normal(size=(n, 1)) + rng.normal(size=(n, 6))), 0, 4)
    return pd.DataFrame(items).add_prefix("item").assign(age=rng.normal(50, 12, n).round())


@pytest.mark.parametrize("kind", [small, derived, rounded_by_some, often_zero, usual_and_most, scores])
@pytest.mark.parametrize("n", [150, 600, 4000])
def test_tables_of_independent_rows_are_not_accused(kind, n):
    found = [find_repeated(read_features(kind(n, np.random.default_rng(seed)))) for seed in range(4)]
    assert found == [None] * 4


def test_a_result_tells_of_repeated_rows_unless_clusters_are_given():
    table, person = visits(np.full(40, 3))
    rng = np.random.default_rng(0)
    y, arm = rng.normal(size=len(table)), rng.integers(0, 2, len(table))
    selector = ModifierSelector(**FAST, explain=False)
    with pytest.warns(UserWarning, match=r"rows repeat those of others in age, bmi.*clusters="):
        told = selector.fit(table, y, treatment=arm).result_
    assert not told.ok
    known = selector.fit(table, y, treatment=arm, clusters=person).result_
    assert "repeated_rows" not in set(known.checks["name"])


# Identifiers.


@pytest.mark.parametrize("name", ["id", "patient_id", "PatientID", "USUBJID", "pid", "Proband", "paciente_id", "vpn"])
def test_an_identifier_with_several_rows_is_refused(name):
    table, person = visits(np.full(60, 2))
    table = table.assign(change=np.random.default_rng(0).normal(size=120), arm=np.arange(120) % 2, **{name: person + 7})
    with pytest.raises(ValueError, match=rf"{name} looks like an identifier: 60 values.*clusters='{name}'"):
        assign_roles(table, outcome="change", treatment="arm")
    with pytest.raises(ValueError, match=rf"clusters='{name}'"):
        assign_roles(table, outcome="change", treatment="arm", features=["age"], adjust_for=["bmi"])
    assign_roles(table, outcome="change", treatment="arm", clusters=name)


@pytest.mark.parametrize("label", ["{}", "x{:03}"])
def test_an_identifier_of_any_name_is_refused_where_it_has_no_role(label):
    table, person = visits(np.full(60, 3))
    given = {"change": np.random.default_rng(0).normal(size=180), "arm": np.arange(180) % 2}
    table = table.assign(q7=[label.format(int(k) + 7) for k in person], **given)
    table["q7"] = table["q7"].astype(int) if label == "{}" else table["q7"]
    with pytest.raises(ValueError, match="q7 looks like an identifier: 60 values"):
        assign_roles(table, outcome="change", treatment="arm", features=["age", "bmi", "sex", "lab"], adjust_for=[])


def test_an_identifier_in_a_file_is_refused(tmp_path):
    table, person = visits(np.full(60, 2))
    table = table.assign(change=np.random.default_rng(0).normal(size=120), arm=np.arange(120) % 2, id=person)
    table.to_csv(tmp_path / "table.csv", index=False)
    with pytest.raises(ValueError, match="id looks like an identifier: 60 values"):
        assign_roles(tmp_path / "table.csv", outcome="change", treatment="arm", features=["age", "sex"])


@pytest.mark.parametrize(
    "ids",
    [
        lambda rng: np.arange(240),  # of every row
        lambda rng: np.arange(240) % 40,  # begins anew in every site
        lambda rng: np.arange(240) // 60,  # four sites
    ],
)
def test_identifiers_that_no_rows_share_in_earnest_are_not_accused(ids):
    rng = np.random.default_rng(0)
    table = people(240).assign(change=rng.normal(size=240), arm=rng.integers(0, 2, 240), id=ids(rng))
    assign_roles(table, outcome="change", treatment="arm", features=["age", "bmi", "sex", "region"], adjust_for=[])


def test_columns_without_a_role_that_are_no_identifiers_are_not_accused():
    for seed in range(20):
        rng, n = np.random.default_rng(seed), 400
        table = derived(n, rng).assign(
            change=rng.normal(size=n), arm=rng.integers(0, 2, n), sbp=rng.integers(90, 180, n)
        )
        table["batch"] = rng.integers(0, 80, n)
        assign_roles(table, outcome="change", treatment="arm", features=["weight"], adjust_for=["senior", "decade"])


@pytest.mark.parametrize(
    "name", ["site_id", "paid", "acid", "region", "age", "number", "visit_id", "video", "product_no"]
)
def test_names_of_other_columns_are_no_names_of_persons(name):
    assert not is_person_name(name)
