"""Obesity and inflammation (NHANES): the paper's real data; see docs/examples/nhanes.md.

python examples/nhanes.py                     # downloads 14 tables from CDC once
python examples/nhanes.py --data FOLDER       # a folder that has them, as XPT, CSV or CSV.XZ files
"""

import os
import sys

if "--data" in sys.argv:
    os.environ["MODIFIND_DATA"] = sys.argv[sys.argv.index("--data") + 1]

# %% data
from modifind import ModifierSelector
from modifind.datasets import fetch_nhanes_crp

people = fetch_nhanes_crp()
overweight = people.treatment.map({0: "BMI to 25", 1: "BMI above 25"})
X = people.X.assign(female=people.X["female"].map({0: "man", 1: "woman"}))
print(f"{len(people.X)} adults, {people.X.shape[1]} features")
print(people.y.groupby(overweight).describe()[["count", "25%", "50%", "75%", "max"]].round(2).to_string())

# %% raw
raw = ModifierSelector(discrete_features=people.discrete_features, random_state=0, explain=False)
raw.fit(X, people.y, treatment=overweight, treated="BMI above 25")
print("selected on the raw scale:", ", ".join(raw.result_.selected))

# %% log
selector = ModifierSelector(discrete_features=people.discrete_features, outcome_transform="log", random_state=0)
selector.fit(X, people.y, treatment=overweight, treated="BMI above 25")
result = selector.result_
columns = ["kind", "statistic", "p_value", "p_adjusted", "caution"]
print(result.table.sort_values("p_value")[columns].round(2).head(8).to_string())

# %% overlap
overlap = ["effective_rows_treated", "effective_rows_control", "auc"]
print({name: round(result.overlap[name], 2) for name in overlap})
print("every check that bears on validity passed:", result.ok)

# %% changes
for name in result.selected:
    print(f"{name}: {result.changes.loc[name, 'verdict']}")

# %% age
curve = result.curve("age").iloc[[2, 7, 12, 17, 22]]
print(
    curve[["value", "mean_effect", "mean_effect_low", "mean_effect_high", "sd_ratio"]].round(2).to_string(index=False)
)

# %% picture
result.plot.curve("age").figure_.savefig("nhanes-age.png", dpi=200)

# %% female
print(
    result.curve("female")[["value", "mean_effect", "mean_effect_low", "mean_effect_high", "sd_ratio"]]
    .round(2)
    .to_string()
)

# %% report
result.report("nhanes.html")
