"""Two e-mails and none (Hillstrom's challenge): three arms; see docs/examples/hillstrom.md.

MODIFIND_DATA=FOLDER python examples/hillstrom.py     # the folder has real/hillstrom.csv.xz
"""

# %% data
import os
from pathlib import Path

import pandas as pd

from modifind import ModifierSelector

folder = Path(os.environ.get("MODIFIND_DATA", "."))
everybody = pd.read_csv(folder / "real" / "hillstrom.csv.xz")
customers = everybody.sample(8_000, random_state=0)
shown = customers.groupby("segment")[["visit", "conversion", "spend"]].mean().round(3)
print(shown.assign(rows=customers["segment"].value_counts()).to_string())

# %% fit
X = customers[["recency", "history", "zip_code", "newbie", "channel"]].copy()
X["bought"] = (customers["mens"] + 2 * customers["womens"]).map({1: "mens", 2: "womens", 3: "both"})
shares = {"No E-Mail": 1 / 3, "Mens E-Mail": 1 / 3, "Womens E-Mail": 1 / 3}
selector = ModifierSelector(propensity=shares, placebo_runs=2, random_state=0)
visit = selector.fit(X, customers["visit"], treatment=customers["segment"], reference="No E-Mail").result_
print(visit.table[["p_value", "p_adjusted", "selected", "arms"]].sort_values("p_value").round(4).to_string())
print(visit.placebo.text)

# %% contrasts
for label, table in visit.contrasts.items():
    print(label)
    print(table[["p_value", "p_adjusted", "selected"]].sort_values("p_value").round(4).head(3).to_string())

# %% bought
womens = visit.contrast("Womens E-Mail")
for label in visit.contrasts:
    own = visit.contrast(label)
    print(f"{label}: {own.changes.loc['bought', 'verdict']}")
    print(own.curve("bought")[["value", "mean_effect", "mean_effect_low", "mean_effect_high"]].round(3).to_string())

# %% picture
womens.plot.curve("bought").figure_.savefig("hillstrom-bought.png", dpi=200)

# %% two
two = ModifierSelector(propensity=0.5, random_state=0, explain=False)
pair = {"arms": ("No E-Mail", "Womens E-Mail"), "reference": "No E-Mail"}
two.fit(X, customers["visit"], treatment=customers["segment"], **pair)
print((two.result_.table["p_value"] == womens.table["p_value"]).all())

# %% spend
selector = ModifierSelector(propensity=shares, explain=False, random_state=0)
spend = selector.fit(X, customers["spend"], treatment=customers["segment"], reference="No E-Mail").result_
print(spend.table[["p_value", "p_adjusted", "selected"]].sort_values("p_value").round(4).head(3).to_string())
print(f"rows that spent anything: {(customers['spend'] > 0).sum()}")

# %% everybody
bought = (everybody["mens"] + 2 * everybody["womens"]).map({1: "mens", 2: "womens", 3: "both"}).rename("bought")
print(everybody["visit"].groupby([bought, everybody["segment"]]).mean().unstack().round(3).to_string())
print(everybody["visit"].groupby(everybody["segment"]).mean().round(3).to_dict())
