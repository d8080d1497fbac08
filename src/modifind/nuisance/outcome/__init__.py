"""Models of the outcome in both arms: its location and its scale."""

from modifind.nuisance.outcome.additive import AdditiveLearner, BoostingLearner
from modifind.nuisance.outcome.contract import OutcomeLearner
from modifind.nuisance.outcome.generalised import AdditiveAmounts, AdditiveClassifier, AdditiveCounts, AdditiveOrdinal
from modifind.nuisance.outcome.learners import RegressorLearner
from modifind.nuisance.outcome.neural import NeuralLearner

__all__ = [
    "AdditiveAmounts",
    "AdditiveClassifier",
    "AdditiveCounts",
    "AdditiveLearner",
    "AdditiveOrdinal",
    "BoostingLearner",
    "NeuralLearner",
    "OutcomeLearner",
    "RegressorLearner",
]
