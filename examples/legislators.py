"""Legislators and e-mails (Broockman 2013): a randomised experiment; see docs/examples/legislators.md.

Needs ``pip install 'modifind[examples]'``.
"""

# %% data
import numpy as np
from causaldata import black_politicians

from modifind import EffectLikelihood, ModifierSelector

mails = black_politicians.load_pandas().data
arm = mails["treat_out"].map({0: "district", 1: "outside"})
answered = mails["responded"]
features = [
    "leg_black",
    "leg_democrat",
    "leg_senator",
    "south",
    "blackpercent",
    "urbanpercent",
    "medianhhincom",
    "totalpop",
    "statessquireindex",
]
X = mails[features].assign(leg_black=mails["leg_black"].map({0: "other", 1: "Black"}))
print(f"{len(mails)} legislators, {mails['leg_black'].sum():.0f} of them Black")
print(answered.groupby(arm).agg(["size", "mean"]).round(2).to_string())

# %% fit
repeated = EffectLikelihood(cv_repeats=3)
X = X.assign(totalpop=np.log(X["totalpop"]), blackpercent=np.log(X["blackpercent"] + 0.005))
selector = ModifierSelector(repeated, propensity=0.5, random_state=0)
result = selector.fit(X, answered, treatment=arm, treated="outside").result_
columns = ["kind", "statistic", "p_value", "p_adjusted", "selected"]
print(result.table.sort_values("p_value")[columns].round(2).to_string())
print("every check that bears on validity passed:", result.ok)

# %% states
states = mails["statessquireindex"]
clustered = ModifierSelector(repeated, propensity=0.5, random_state=0, explain=False)
clustered.fit(X, answered, treatment=arm, treated="outside", clusters=states)
print(f"{states.nunique()} clusters; least adjusted p: {clustered.result_.table['p_adjusted'].min():.1f}")

# %% curve
print(
    result.curve("leg_black")[["value", "mean_effect", "mean_effect_low", "mean_effect_high"]]
    .round(2)
    .to_string(index=False)
)

# %% interaction
rate = answered.groupby([mails["leg_black"], mails["treat_out"]]).agg(["mean", "var", "size"])
effect = rate["mean"].unstack().diff(axis=1)[1]
variance = (rate["var"] / rate["size"]).unstack().sum(axis=1)
z = (effect[1] - effect[0]) / variance.sum() ** 0.5
print(f"difference of the two effects {effect[1] - effect[0]:.2f}, z = {z:.1f}")

# %% one_feature
for repeats in (1, 3, 5):
    alone = ModifierSelector(EffectLikelihood(cv_repeats=repeats), propensity=0.5, random_state=0, explain=False)
    alone.fit(X[["leg_black"]], answered, treatment=arm, treated="outside")
    print(f"{repeats} sets of folds: p = {alone.result_.table.loc['leg_black', 'p_value']:.2f}")

# %% picture
result.plot.curve("leg_black").figure_.savefig("legislators.png", dpi=200)

# %% report
result.report("legislators.html")
