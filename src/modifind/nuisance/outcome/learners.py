"""Learners of the outcome, by name or as users pass them."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from sklearn.base import BaseEstimator, is_classifier, is_regressor

from modifind.data.wording import check_part
from modifind.nuisance.outcome.additive import AdditiveLearner
from modifind.nuisance.outcome.amounts import AdditiveAmounts
from modifind.nuisance.outcome.binary import AdditiveClassifier
from modifind.nuisance.outcome.boosting import BoostingLearner
from modifind.nuisance.outcome.contract import OutcomeLearner
from modifind.nuisance.outcome.counts import AdditiveCounts
from modifind.nuisance.outcome.neural import NeuralLearner
from modifind.nuisance.outcome.ordinal import AdditiveOrdinal
from modifind.nuisance.outcome.regressor import RegressorLearner

# The additive model of each kind of outcome, and the learners beside it: from the device to a learner.
ADDITIVE: dict[str, Any] = {
    "numeric": AdditiveLearner,
    "binary": AdditiveClassifier,
    "count": AdditiveCounts,
    "ordinal": AdditiveOrdinal,
    "amount": AdditiveAmounts,
}
OTHERS: dict[str, dict[str, Callable[[str], OutcomeLearner]]] = {
    "numeric": {"boosting": lambda device: BoostingLearner(), "neural": lambda device: NeuralLearner(device=device)}
}
PREDICTED = ("numeric", "binary", "count")  # kinds of outcomes that one regressor or classifier is a model of


def resolve_learners(learner: Any, kind: str, *, device: str = "cpu") -> dict[str, OutcomeLearner]:
    """Candidates by name from what the user passed: "auto", a name, an object, or a list of those.

    Names stand for learners of outcomes of the `kind`, and networks are trained on `device`.
    """
    known = {
        "linear": lambda device: ADDITIVE[kind](0, products=False),
        "splines": lambda device: ADDITIVE[kind](),
        **OTHERS.get(kind, {}),
    }
    if learner == "auto":
        learner = [name for name in known if name != "neural" or find_spec("torch") is not None]
    chosen: dict[str, OutcomeLearner] = {}
    for item in learner if isinstance(learner, list | tuple) else [learner]:
        name = item if isinstance(item, str) else type(item).__name__
        if isinstance(item, str) and item not in known:
            names, article = ", ".join(map(repr, known)), "an" if kind[0] in "ao" else "a"
            raise ValueError(f"learner for {article} {kind} outcome must be 'auto', {names}, not {item!r}")
        made = known[item](device) if isinstance(item, str) else _users_learner(item, kind, tuple(known))
        chosen[f"{name} {len(chosen) + 1}" if name in chosen else name] = made
    if not chosen:
        raise ValueError("learner must not be an empty list")
    return chosen


def _users_learner(item: Any, kind: str, known: tuple[str, ...]) -> OutcomeLearner:
    """The user's learner, or a learner made of a scikit-learn estimator; refused if it does not suit the outcome."""
    check_part("learner", item, "fit", "predict")
    if not isinstance(item, BaseEstimator) or not (is_regressor(item) or is_classifier(item)):
        return item
    if kind not in PREDICTED:
        raise ValueError(
            f"learner {type(item).__name__} predicts averages, which do not model an outcome of kind {kind!r}; "
            f"use {' or '.join(map(repr, known))}"
        )
    lacks = (
        "an outcome of two values" if kind != "binary" else "" if hasattr(item, "predict_proba") else "predict_proba"
    )
    if lacks and is_classifier(item):
        raise ValueError(f"learner {type(item).__name__} is a classifier, which needs {lacks}")
    return RegressorLearner(item)
