"""The settings of a run, and what follows from them for a table."""

from __future__ import annotations

from dataclasses import dataclass

from modifind._typing import Array, Ints
from modifind.data.feature_groups import Unit
from modifind.data.feature_matrix import FeatureTable
from modifind.data.outcome_scale import warn_of_one_row, warn_of_scale
from modifind.data.wording import named
from modifind.engine.progress import Progress
from modifind.inference import ConditionalRandomizationTest
from modifind.nuisance.conditional import BaseSampler
from modifind.nuisance.propensity.scores import PropensityModel
from modifind.statistics import Statistic
from modifind.statistics.families import Family, family_of


@dataclass(frozen=True)
class RunSettings:
    """Settings of a run; they are those of `ModifierSelector`.

    `feature_groups` are checked columns by group, and `sampler` one that agrees with the statistic.
    """

    statistic: Statistic
    sampler: BaseSampler
    propensity: PropensityModel
    test: ConditionalRandomizationTest
    n_resamples: int | str
    alpha: float
    adjust: str
    outcome_transform: str | None
    feature_groups: dict[str, tuple[str, ...]]
    n_folds: int
    n_jobs: int | None
    progress: bool | Progress
    seed: int
    explain: bool = True
    population: str = "all"
    outcome: str | Family = "auto"
    effect_scale: str = "difference"
    design: str | None = None

    def check_outcome(self, y: Array, arms: Ints, *, weighted: bool) -> None:
        """Refuse an outcome that does not suit the settings; warn where the scale matters and nobody has chosen one."""
        self.statistic.validate(self.family(y, arms), weighted=weighted)
        if self.outcome_transform is None:
            warn_of_one_row(y)
            if isinstance(self.outcome, str) and (self.outcome, self.effect_scale) == ("auto", "difference"):
                warn_of_scale(y)

    def check_groups(self, table: FeatureTable, units: tuple[Unit, ...]) -> None:
        """Refuse groups whose joint distribution the sampler cannot fit."""
        together = [unit for unit in units if len(unit.members) > 1]
        if not any(unit.group for unit in units):
            return
        if not getattr(self.sampler, "learns", False):
            raise ValueError(
                f"{type(self.sampler).__name__} does not say that it learns from any columns (learns = True), which "
                "feature_groups need; use another sampler or leave the groups out"
            )
        gaps = [table.names[m] for unit in together for m in unit.members if m in table.incomplete]
        if gaps:
            raise ValueError(
                "feature_groups does not support missing values in continuous columns of a group (found in "
                f"{named(gaps)}); fill them, use missing='drop', or leave the columns out of the group"
            )

    def family(self, y: Array, arms: Ints) -> Family:
        """What the outcome is, on the scale on which effects are compared."""
        return family_of(y, self.outcome, self.effect_scale, arms)

    def max_resamples(self, n_features: int) -> int:
        """Resamples of a feature, at most; none where the tail is analytic."""
        if not self.statistic.resamples:
            return 0
        return self.test.resolve_resamples(self.n_resamples, n_features, self.alpha, self.adjust)
