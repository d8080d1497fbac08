"""Samplers of one feature given all else."""

from __future__ import annotations

from modifind.data.words import check_part
from modifind.nuisance.conditional.adaptive import AutoSampler, BoostingSampler, SplineSampler
from modifind.nuisance.conditional.contract import Calibration, Conditional, ConditionalRule
from modifind.nuisance.conditional.cvae import CVAESampler
from modifind.nuisance.conditional.distributions import ConditionalGrid
from modifind.nuisance.conditional.gaussian import GaussianSampler
from modifind.nuisance.conditional.sampler import BaseSampler, MarginalSampler
from modifind.nuisance.conditional.special_columns import IncompleteSampler, with_missing_support

_BY_NAME: dict[str, type[BaseSampler]] = {
    sampler.name: sampler
    for sampler in (AutoSampler, GaussianSampler, SplineSampler, BoostingSampler, CVAESampler, MarginalSampler)
}


def resolve_sampler(sampler: str | BaseSampler) -> BaseSampler:
    """A sampler from its name, or the object itself."""
    if isinstance(sampler, str):
        if sampler not in _BY_NAME:
            raise ValueError(f"sampler must be one of {', '.join(map(repr, _BY_NAME))} or a sampler, not {sampler!r}")
        return _BY_NAME[sampler]()
    check_part("sampler", sampler, "fit", "rule")
    return sampler


__all__ = [
    "AutoSampler",
    "BaseSampler",
    "BoostingSampler",
    "CVAESampler",
    "Calibration",
    "Conditional",
    "ConditionalGrid",
    "ConditionalRule",
    "GaussianSampler",
    "IncompleteSampler",
    "MarginalSampler",
    "SplineSampler",
    "resolve_sampler",
    "with_missing_support",
]
