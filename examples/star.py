"""Class size in Tennessee (Project STAR): three arms, schools as clusters; see docs/examples/star.md.

MODIFIND_DATA=FOLDER python examples/star.py     # the folder has real/Ecdat_Star.csv
"""

# %% data
import os
from pathlib import Path

import pandas as pd

from modifind import ModifierSelector

folder = Path(os.environ.get("MODIFIND_DATA", "."))
pupils = pd.read_csv(folder / "real" / "Ecdat_Star.csv")
print(pupils.groupby("classk")[["tmathssk", "treadssk"]].agg(["size", "mean"]).round(1).to_string())
print(f"{pupils['schidkn'].nunique()} schools")

# %% fit
X = pupils[["sex", "race", "freelunk", "totexpk"]]
selector = ModifierSelector(placebo_runs=5, random_state=0)
design = {"reference": "regular", "clusters": pupils["schidkn"]}
maths = selector.fit(X, pupils["tmathssk"], treatment=pupils["classk"], **design).result_
print(maths.table[["p_value", "p_adjusted", "selected", "role"]].sort_values("p_value").round(3).to_string())
print(maths.placebo.text)

# %% contrasts
for label, table in maths.contrasts.items():
    effect = [round(maths.contrast(label).overall[f"mean_effect{end}"], 1) for end in ("", "_low", "_high")]
    print(f"{label}: average effect {effect[0]} ({effect[1]} to {effect[2]})")
    print(table[["p_value", "p_adjusted", "selected"]].round(3).to_string())

# %% lunch
curve = maths.contrast("small.class").curve("freelunk")
print(curve[["value", "mean_effect", "mean_effect_low", "mean_effect_high"]].round(1).to_string(index=False))

# %% picture
maths.contrast("small.class").plot.curve("freelunk").figure_.savefig("star-lunch.png", dpi=200)

# %% reading
selector = ModifierSelector(explain=False, random_state=0)
reading = selector.fit(X, pupils["treadssk"], treatment=pupils["classk"], **design).result_
print(reading.table[["p_value", "p_adjusted", "selected"]].sort_values("p_value").round(3).to_string())
