"""Named configurations."""

from __future__ import annotations

from typing import Any

from modifind.propensity import EarlyStoppedMLP, PropensityModel
from modifind.samplers import CVAESampler
from modifind.selector import ModifierSelector
from modifind.statistics import WCMMD
from modifind.testing import ConditionalRandomizationTest


def uai2022(
    *, n_resamples: int = 100, epochs: int | None = None, random_state: Any = None, **settings: Any
) -> ModifierSelector:
    """The configuration of Chikahara, Yamada and Kashima (UAI 2022).

    Random Fourier features (r = 1000) with Horvitz-Thompson weights and median bandwidths; a network with two layers
    of 50 units for the propensity, fitted and evaluated on the same rows and re-evaluated on resamples; a conditional
    variational autoencoder that does not see the treatment as the sampler; B = 100 resamples with ``p = count / B``;
    Benjamini-Hochberg at 0.05. The paper does not say how long its propensity network trains, which under these
    weights decides the result; here it stops at its best held-out log-loss, and `epochs` sets it otherwise.

    Parameters
    ----------
    n_resamples : int, default=100
        The paper's B.
    epochs : int, optional
        Train the propensity network for exactly this many epochs.
    random_state : int or Generator, optional
        Seed.
    **settings
        Other arguments of `ModifierSelector`; not statistic, propensity and test, which make the preset.

    Examples
    --------
    >>> uai2022().get_params()["adjust"]
    'bh'
    """
    fixed = sorted({"statistic", "propensity", "test"} & set(settings))
    if fixed:
        raise ValueError(f"the preset sets {', '.join(fixed)} itself; use ModifierSelector for another choice")
    network: Any = "mlp" if epochs is None else EarlyStoppedMLP(epochs=epochs, random_state=None)
    return ModifierSelector(
        statistic=WCMMD("rff", "horvitz_thompson", weight_cap=None, n_components=1000),
        sampler=settings.pop("sampler", CVAESampler(condition_on_treatment=False)),
        propensity=PropensityModel(network, cross_fit=False),
        test=ConditionalRandomizationTest("count", stop_after=None),
        n_resamples=n_resamples,
        random_state=random_state,
        **settings,
    )
