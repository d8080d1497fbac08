"""Find the features that change how a treatment works.

Names are imported on first use, so ``import modifind`` is quick and never loads torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from modifind.inference import ConditionalRandomizationTest
    from modifind.nuisance.propensity.scores import PropensityModel
    from modifind.result.selection_result import SelectionResult
    from modifind.selector import ModifierSelector
    from modifind.statistics import WCMMD, EffectLikelihood

__version__ = "0.1.0"

__all__ = [
    "WCMMD",
    "ConditionalRandomizationTest",
    "EffectLikelihood",
    "ModifierSelector",
    "PropensityModel",
    "SelectionResult",
    "__version__",
]

_HOME = {
    "ConditionalRandomizationTest": "modifind.inference",
    "EffectLikelihood": "modifind.statistics",
    "ModifierSelector": "modifind.selector",
    "PropensityModel": "modifind.nuisance.propensity.scores",
    "SelectionResult": "modifind.result.selection_result",
    "WCMMD": "modifind.statistics",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'modifind' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
