from modifind._version import __version__ as __version__
from modifind.inference.randomisation import ConditionalRandomizationTest as ConditionalRandomizationTest
from modifind.nuisance.conditional.adaptive import AutoSampler as AutoSampler
from modifind.nuisance.conditional.adaptive import BoostingSampler as BoostingSampler
from modifind.nuisance.conditional.adaptive import SplineSampler as SplineSampler
from modifind.nuisance.conditional.cvae import CVAESampler as CVAESampler
from modifind.nuisance.conditional.gaussian import GaussianSampler as GaussianSampler
from modifind.nuisance.conditional.sampler import MarginalSampler as MarginalSampler
from modifind.nuisance.propensity.models import EarlyStoppedMLP as EarlyStoppedMLP
from modifind.nuisance.propensity.scores import PropensityModel as PropensityModel
from modifind.result.selection_result import SelectionResult as SelectionResult
from modifind.selector import ModifierSelector as ModifierSelector
from modifind.statistics.effect_likelihood import EffectLikelihood as EffectLikelihood
from modifind.statistics.wcmmd import WCMMD as WCMMD

_HOME: dict[str, str]
