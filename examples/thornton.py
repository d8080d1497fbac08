"""Incentives to learn an HIV result (Malawi): a binary outcome, villages as clusters; see docs/examples/thornton.md.

MODIFIND_DATA=FOLDER python examples/thornton.py     # the folder has real/thornton_hiv.csv
"""

# %% data
import os
from pathlib import Path

import pandas as pd

from modifind import ModifierSelector

folder = Path(os.environ.get("MODIFIND_DATA", "."))
people = pd.read_csv(folder / "real" / "thornton_hiv.csv").dropna().query("hiv2004 >= 0")
arm = people["any"].map({0.0: "no incentive", 1.0: "incentive"}).rename("arm")
print(people["got"].groupby(arm).agg(["size", "mean"]).round(3).to_string())
print(f"{people['villnum'].nunique()} villages")

# %% fit
X = people[["distvct", "age"]].assign(hiv=people["hiv2004"].map({0.0: "negative", 1.0: "positive"}))
design = {"reference": "no incentive", "clusters": people["villnum"]}
selector = ModifierSelector(placebo_runs=10, random_state=0)
result = selector.fit(X, people["got"], treatment=arm, **design).result_
print(result.table[["p_value", "p_adjusted", "selected", "role"]].round(4).to_string())
print(result.placebo.text)

# %% distance
curve = result.curve("distvct").iloc[[2, 7, 12, 17, 22]]
print(curve[["value", "mean_effect", "mean_effect_low", "mean_effect_high"]].round(2).to_string(index=False))

# %% picture
result.plot.curve("distvct").figure_.savefig("thornton-distance.png", dpi=200)

# %% rates
far = (people["distvct"] > 1.5).map({False: "within 1.5 km", True: "farther"})
print(people["got"].groupby([far, arm]).mean().unstack().round(3).to_string())
print(people["got"].groupby([X["hiv"], arm]).mean().unstack().round(3).to_string())

# %% notes
print("every check that bears on validity passed:", result.ok)
print(f"effective rows after weighting: {result.overlap['effective_rows_control']:.0f} without an incentive")
