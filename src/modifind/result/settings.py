"""What settings of a result must be for reports, figures and lines to be made of them; others may be anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypedDict

from modifind.result.codec import Cell, decode, refuse

Named = TypedDict("Named", {"class": str})


class _Model(TypedDict):
    likelihood: str
    n_folds: int
    stack: str


class _Weights(TypedDict):
    effective_rows: float


class _OutcomeWeights(_Weights):
    n_missing: int
    share_missing: float
    times_sample_weight: bool


class _Clusters(TypedDict):
    n_clusters: int


class _Said(TypedDict):
    randomised: bool
    said: bool
    chance: Literal["known", "strata", "observed", "fitted"]


class _Design(_Said, total=False):
    share: float


class _OfEvery(TypedDict):
    alpha: float
    adjust: Literal["bh", "by", "holm", "bonferroni", "none"]
    n_rows: int
    n_treated: int
    n_control: int
    treated_label: Cell
    control_label: Cell
    propensity_model: str
    null_hypothesis: str
    seed: int


class Settings(_OfEvery, total=False):
    """Types of the settings that reports, figures and messages use; a result may have others."""

    design: _Design
    propensity_clip: list[float]
    population: Literal["all", "overlap"]
    outcome_name: str
    better: Literal["higher", "lower"] | None
    unit: str | None
    treatment_name: str
    max_train_rows: int | None
    n_train_rows: int
    n_rows_dropped: int
    adjust_for: list[str] | None
    feature_groups: dict[str, list[str]] | None
    group_column_kinds: dict[str, Literal["continuous", "discrete"]]
    model: _Model | None
    sample_weight: _Weights
    clusters: _Clusters
    outcome_weights: _OutcomeWeights


class _Repeated(Named):
    cv_repeats: int


class _Kernel(Named):
    weighting: str
    estimator: str
    resample_weights: str
    weight_cap: float | None
    weight_quantile: float | None


class _ByLikelihood(TypedDict):
    model: _Model
    statistic: _Repeated
    sampler: Named


class _ByResampling(TypedDict):
    statistic: Named
    sampler: Named
    n_resamples_used: int


class _ByKernel(TypedDict):
    statistic: _Kernel
    sampler: Named
    n_resamples_used: int


class _BySelection(TypedDict):
    sided: str
    penalty: float | None
    penalty_factor: float
    n_active: int
    n_columns: int
    outcome_learner: str


def check_settings(settings: Mapping[str, Any]) -> None:
    """Refuse settings that do not belong to the kind of test or that no run can have had.

    Raises
    ------
    ValueError
        Names the entry, what was expected and what was found.
    """
    decode(settings, _of_test(settings), "settings")
    if not 0.0 < settings["alpha"] < 1.0:
        refuse("settings.alpha", "a number between 0 and 1", settings["alpha"])
    for limit in settings.get("propensity_clip", ()):
        if not 0.0 <= limit <= 1.0:
            refuse("settings.propensity_clip", "numbers from 0 to 1", limit)
    for name in ("n_rows", "n_treated", "n_control"):
        if settings[name] < 0:
            refuse(f"settings.{name}", "a number of rows", settings[name])


def _of_test(settings: Mapping[str, Any]) -> Any:
    if settings.get("method") == "si_em":
        return _BySelection
    if settings.get("model"):
        return _ByLikelihood
    statistic = settings.get("statistic")
    name = statistic.get("class") if isinstance(statistic, Mapping) else None
    return _ByLikelihood if name == "EffectLikelihood" else _ByKernel if name == "WCMMD" else _ByResampling
