"""Cost sharing and visits to the doctor (RAND): four plans, a count, persons as clusters; see docs/examples/randhie.md.

MODIFIND_DATA=FOLDER python examples/randhie.py     # the folder has real/randhie.csv.xz
"""

# %% data
import os
from pathlib import Path

import numpy as np
import pandas as pd

from modifind import ModifierSelector

folder = Path(os.environ.get("MODIFIND_DATA", "."))
years = pd.read_csv(folder / "real" / "randhie.csv.xz")
person = (years.drop(columns="mdvis") != years.drop(columns="mdvis").shift()).any(axis=1).cumsum()
some = np.random.default_rng(0).choice(person.max(), 2_500, replace=False) + 1
kept = (years["idp"] == 0) & person.isin(some)
years, person = years[kept], person[kept]
plan = (np.exp(years["lncoins"]) - 1).round().astype(int).map("pays {}%".format)
print(years["mdvis"].groupby(plan).agg(["size", "mean", "std"]).round(2).to_string())
print(f"{person.nunique()} persons")

# %% fit
health = years[["hlthg", "hlthf", "hlthp"]].to_numpy() @ [1, 2, 2]
X = pd.DataFrame({"diseases": years["disea"], "limited": np.where(years["physlm"] > 0, "yes", "no")})
X["health"] = pd.Categorical.from_codes(health.astype(int), ["excellent", "good", "fair or poor"])
selector = ModifierSelector(placebo_runs=2, random_state=0)
result = selector.fit(X, years["mdvis"], treatment=plan, reference="pays 0%", clusters=person).result_
print(result.table[["p_value", "p_adjusted", "selected", "role", "arms"]].round(4).to_string())
print(result.placebo.text)

# %% contrasts
for label, table in result.contrasts.items():
    effect = [round(result.contrast(label).overall[f"mean_effect{end}"], 2) for end in ("", "_low", "_high")]
    print(f"{label}: average effect {effect[0]} ({effect[1]} to {effect[2]}), smallest p {table['p_value'].min():.3f}")

# %% health
curve = result.contrast("pays 95%").curve("health")
print(curve[["value", "mean_effect", "mean_effect_low", "mean_effect_high"]].round(2).to_string(index=False))

# %% picture
result.contrast("pays 95%").plot.curve("health").figure_.savefig("randhie-health.png", dpi=200)

# %% ratio
selector = ModifierSelector(effect_scale="ratio", explain=False, random_state=0)
ratio = selector.fit(X, years["mdvis"], treatment=plan, reference="pays 0%", clusters=person).result_
print(ratio.table[["p_value", "p_adjusted", "selected", "role"]].round(4).to_string())

# %% notes
print("every check that bears on validity passed:", result.ok)
for text in result.cautions:
    print("-", text)
