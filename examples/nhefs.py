"""Quitting smoking and weight (NHEFS): an observational study; see docs/examples/nhefs.md.

Needs ``pip install 'modifind[examples]'``.
"""

# %% data
import numpy as np
import pandas as pd
from causaldata import nhefs
from sklearn.linear_model import LogisticRegression

from modifind import ModifierSelector

people = nhefs.load_pandas().data
people["quit"] = people["qsmk"].map({0: "smokes on", 1: "quit"})
people["sex"] = people["sex"].astype(int).map({0: "man", 1: "woman"})
people["race"] = people["race"].astype(int).map({0: "white", 1: "black or other"})
people["exercise"] = people["exercise"].astype(int).map({0: "much", 1: "moderate", 2: "little"})
people["active"] = people["active"].astype(int).map({0: "very", 1: "moderately", 2: "inactive"})
people["education"] = people["education"].astype(int).astype(str)
features = ["age", "sex", "race", "education", "wt71", "smokeintensity", "smokeyrs", "exercise", "active"]
X = people[features]
print(X.describe().loc[["mean", "min", "max"]].round(1).to_string())

# %% missing
seen = people["wt82_71"].notna()
count = people.groupby("quit")["wt82_71"].agg(people="size", weighed="count")
print(count.to_string())

# %% fit
selector = ModifierSelector(random_state=0)
selector.fit(X[seen], people["wt82_71"][seen], treatment=people["quit"][seen], treated="quit")
result = selector.result_
columns = ["kind", "statistic", "p_value", "p_adjusted", "selected"]
print(result.table.sort_values("p_value")[columns].round(2).to_string())

# %% checks
print("every check that bears on validity passed:", result.ok)
overlap = ["effective_rows_treated", "effective_rows_control", "auc"]
print({name: round(result.overlap[name], 1) for name in overlap})

# %% overall
low, mean, high = (result.overall[name] for name in ("mean_effect_low", "mean_effect", "mean_effect_high"))
print(f"{mean:.1f} kg ({low:.1f} to {high:.1f})")

# %% changes
parts = ["mean_adjusted", "spread_adjusted", "shape_adjusted"]
print(result.changes[parts].round(2).to_string())
for name in result.selected:
    print(f"{name}: {result.changes.loc[name, 'verdict']}")

# %% picture
result.plot.curve("wt71").figure_.savefig("nhefs-weight.png", dpi=200)

# %% arms
thirds = pd.qcut(people["wt71"], 3, labels=["lightest third", "middle", "heaviest third"])
spread = people[seen].groupby([thirds[seen], "quit"], observed=True)["wt82_71"].std().unstack()
print(spread.round(1).to_string())

# %% percent
percent = 100 * np.log(people["wt82"] / people["wt71"])
relative = ModifierSelector(random_state=0)
relative.fit(X[seen], percent[seen], treatment=people["quit"][seen], treated="quit")
print(relative.result_.table.sort_values("p_value")[columns].round(2).head(4).to_string())
print("sex:", relative.result_.changes.loc["sex", "verdict"])
print(
    relative.result_.curve("sex")[["value", "mean_effect", "mean_effect_low", "mean_effect_high"]].round(0).to_string()
)

# %% sexes
print(percent[seen].groupby([people["sex"], people["quit"]]).std().unstack().round(1).to_string())

# %% censoring
design = pd.get_dummies(people[[*features, "quit"]], drop_first=True).astype(float)
design = (design - design.mean()) / design.std()
chance = LogisticRegression().fit(design, seen).predict_proba(design)[:, 1]
weighted = ModifierSelector(random_state=0, explain=False)
weighted.fit(
    X[seen], people["wt82_71"][seen], treatment=people["quit"][seen], treated="quit", sample_weight=1 / chance[seen]
)
print("selected:", ", ".join(weighted.result_.selected))

# %% report
result.report("nhefs.html")
