"""Models of the outcome in both arms: its location and its scale."""

from modifind.nuisance.outcome.additive import AdditiveLearner
from modifind.nuisance.outcome.amounts import AdditiveAmounts
from modifind.nuisance.outcome.binary import AdditiveClassifier
from modifind.nuisance.outcome.boosting import BoostingLearner
from modifind.nuisance.outcome.contract import OutcomeLearner
from modifind.nuisance.outcome.counts import AdditiveCounts
from modifind.nuisance.outcome.neural import NeuralLearner
from modifind.nuisance.outcome.ordinal import AdditiveOrdinal
from modifind.nuisance.outcome.regressor import RegressorLearner

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
