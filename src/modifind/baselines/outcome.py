"""Expected outcomes E[Y | X] for SI-EM: forests by default, any regressor, or known predictions."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

from modifind._typing import Array, Ints
from modifind.nuisance.propensity.scores import seeded_clone

# Splits and leaves as in R's randomForest; its classifier grows leaves of one row, for votes and not for probabilities.
N_TREES = 200
NODE_SIZE = 5
FOREST = f"random forest of {N_TREES} trees, cross-fitted"


def propensity_forest(seed: int) -> RandomForestClassifier:
    """Forest for P(treated | features)."""
    return RandomForestClassifier(N_TREES, max_features="sqrt", min_samples_leaf=NODE_SIZE, random_state=seed)


def outcome_learner(model: Any, seed: int) -> Any:
    """Fresh regressor, seeded where the user left its seed open; None when `model` holds predictions."""
    if isinstance(model, str):
        return RandomForestRegressor(N_TREES, max_features=1 / 3, min_samples_leaf=NODE_SIZE, random_state=seed)
    return seeded_clone(model, seed) if hasattr(model, "fit") else None


def check_outcome_model(model: Any) -> None:
    """Refuse names other than "forest", and classifiers."""
    if hasattr(model, "predict_proba") or (isinstance(model, str) and model != "forest"):
        raise ValueError(f"outcome_model must be 'forest', a regressor or an array of predictions, not {model!r}")


def known_predictions(values: Any, n_rows: int) -> Array:
    """One finite prediction per row, as the user passed them."""
    try:
        known = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        known = np.empty(0)
    if known.shape != (n_rows,) or not np.isfinite(known).all():
        shape = f" of shape {known.shape}" if known.size else ""
        raise ValueError(
            f"outcome_model must be 'forest', a regressor or one finite prediction per row ({n_rows}); found "
            f"{type(values).__name__}{shape}"
        )
    return known


def describe_outcome_model(model: Any) -> str:
    """The model in words."""
    if isinstance(model, str):
        return FOREST
    return f"{model!r}, cross-fitted" if hasattr(model, "fit") else "known per row"


def held_out(model: Any, target: Any, design: Array, folds: Ints, fold: int) -> Array:
    """Predictions for the rows of one fold by a model of the others: values, or probabilities of a classifier."""
    train, out = folds != fold, folds == fold
    fitted = clone(model).fit(design[train], target[train])
    if hasattr(fitted, "predict_proba"):
        return fitted.predict_proba(design[out])[:, 1]
    values = np.asarray(fitted.predict(design[out]), dtype=np.float64).ravel()
    if not np.isfinite(values).all():
        raise ValueError(f"{type(model).__name__} predicted values that are not finite; choose another outcome_model")
    return values
