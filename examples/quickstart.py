"""Quickstart: the embedded trial of 1500 simulated patients; see docs/quickstart.md."""

# %% data
from modifind import ModifierSelector
from modifind.datasets import load_trial

trial = load_trial()
print(trial.X.head(3).to_string())
print(trial.treatment.value_counts().to_string())

# %% fit
selector = ModifierSelector(random_state=0)
selector.fit(trial.X, trial.y, treatment=trial.treatment)
result = selector.result_
print("selected:", ", ".join(result.selected))

# %% table
columns = ["kind", "statistic", "p_adjusted", "selected"]
print(result.table.sort_values("p_value")[columns].round(1).to_string())

# %% curve
print(result.curve("smoker")[["value", "mean_effect", "sd_ratio"]].round(1).to_string())

# %% verdicts
for name in result.selected:
    print(f"{name}: {result.changes.loc[name, 'verdict']}")

# %% checks
print("every check that bears on validity passed:", result.ok)

# %% files
result.report("report.html")
result.to_json("result.json")
