"""Named configurations: the paper's method and its two variants, `naive` and `exact`."""

from __future__ import annotations

from typing import Any

from modifind import (
    WCMMD,
    ConditionalRandomizationTest,
    CVAESampler,
    EarlyStoppedMLP,
    MarginalSampler,
    ModifierSelector,
    PropensityModel,
)

PROPENSITY_UNITS = 50
SAMPLER_UNITS = 128


def uai2022(
    *,
    n_resamples: int = 100,
    epochs: int | None = None,
    propensity_units: int = PROPENSITY_UNITS,
    sampler_units: int = SAMPLER_UNITS,
    random_state: Any = None,
    device: str | None = None,
    **settings: Any,
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
    propensity_units : int, default=50
        Units of each of the two layers of the propensity network.
    sampler_units : int, default=128
        Units of each hidden layer of the autoencoder; not with `sampler`.
    random_state : int or Generator, optional
        Seed.
    device : {"cpu", "cuda", "cuda:0", ...}, optional
        Where the autoencoders are trained and drawn from, and resamples scored and evaluated; "cpu" by default. A
        `sampler` given as an object keeps its own.
    **settings
        Other arguments of `ModifierSelector`; not statistic, propensity and test, which make the preset.

    See Also
    --------
    naive, exact : the paper's two variants of its method.
    modifind.baselines.SIEM : the baseline that the paper compares with.

    Examples
    --------
    >>> uai2022().get_params()["adjust"]
    'bh'
    """
    fixed = sorted({"statistic", "propensity", "test"} & set(settings))
    if fixed:
        raise ValueError(f"the preset sets {', '.join(fixed)} itself; use ModifierSelector for another choice")
    plain = epochs is None and propensity_units == PROPENSITY_UNITS
    network: Any = "mlp" if plain else EarlyStoppedMLP((propensity_units,) * 2, epochs=epochs, random_state=None)
    place = device or "cpu"
    autoencoder = CVAESampler(condition_on_treatment=False, hidden=sampler_units, device=place)
    return ModifierSelector(
        statistic=WCMMD("rff", "horvitz_thompson", weight_cap=None, n_components=1000, device=place),
        sampler=settings.pop("sampler", autoencoder),
        propensity=PropensityModel(network, cross_fit=False),
        test=ConditionalRandomizationTest("count", stop_after=None),
        n_resamples=n_resamples,
        random_state=random_state,
        device=device,
        **settings,
    )


def naive(**settings: Any) -> ModifierSelector:
    """The paper's Naive: `uai2022` with each feature drawn from its own values, whatever the other features are.

    That breaks the dependence between features and of features on the treatment, so that its p-values are not those of
    the conditional null hypothesis. It is here for comparison.

    Parameters
    ----------
    **settings
        Arguments of `uai2022`, except `sampler`.

    Examples
    --------
    >>> naive().sampler
    MarginalSampler(condition_on_treatment=False)
    """
    return uai2022(sampler=MarginalSampler(condition_on_treatment=False), **settings)


def exact(**settings: Any) -> ModifierSelector:
    """The paper's Exact: `uai2022` with the kernel itself instead of random Fourier features.

    The published double sum, cubic in the number of rows. ``WCMMD("spectral", "horvitz_thompson", weight_cap=None)``
    gives the same numbers to rounding in linear time.

    Parameters
    ----------
    **settings
        Arguments of `uai2022`. The sums stay on the CPU whatever `device` is.

    Examples
    --------
    >>> exact().statistic.estimator
    'exact'
    """
    statistic = WCMMD("exact", "horvitz_thompson", weight_cap=None, accelerate=False)
    return uai2022(**settings).set_params(statistic=statistic)
