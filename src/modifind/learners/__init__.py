"""Models of the outcome in both arms: where it lies and how far it spreads."""

from modifind.learners.additive import AdditiveLearner
from modifind.learners.base import OutcomeLearner
from modifind.learners.binary import AdditiveClassifier
from modifind.learners.boosting import BoostingLearner
from modifind.learners.neural import NeuralLearner

__all__ = ["AdditiveClassifier", "AdditiveLearner", "BoostingLearner", "NeuralLearner", "OutcomeLearner"]
