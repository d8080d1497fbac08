"""Find the features that change how a treatment works.

Names are imported on first use, so ``import modifind`` is quick and never loads torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from modifind._version import __version__

__all__ = [
    "WCMMD",
    "AutoSampler",
    "BoostingSampler",
    "CVAESampler",
    "ConditionalRandomizationTest",
    "EarlyStoppedMLP",
    "EffectLikelihood",
    "GaussianSampler",
    "MarginalSampler",
    "ModifierSelector",
    "PropensityModel",
    "SelectionResult",
    "SplineSampler",
    "__version__",
]

_HOME = {
    "AutoSampler": "nuisance.conditional.adaptive",
    "BoostingSampler": "nuisance.conditional.adaptive",
    "CVAESampler": "nuisance.conditional.cvae",
    "ConditionalRandomizationTest": "inference.randomisation",
    "EarlyStoppedMLP": "nuisance.propensity.models",
    "EffectLikelihood": "statistics.effect_likelihood",
    "GaussianSampler": "nuisance.conditional.gaussian",
    "MarginalSampler": "nuisance.conditional.sampler",
    "ModifierSelector": "selector",
    "PropensityModel": "nuisance.propensity.scores",
    "SelectionResult": "result.selection_result",
    "SplineSampler": "nuisance.conditional.adaptive",
    "WCMMD": "statistics.wcmmd",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"modifind.{_HOME[name]}"), name)
    raise AttributeError(f"module 'modifind' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
