"""What is said of a table as a whole, beside what is said of each feature."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from modifind._threads import one_thread
from modifind.data.feature_groups import Unit
from modifind.data.feature_matrix import FeatureTable
from modifind.explain.attempts import attempt
from modifind.explain.global_tests import GLOBAL_TESTS, global_tests
from modifind.explain.pseudo import PseudoOutcomes
from modifind.explain.subgroups import SUBGROUPS, subgroup_effects
from modifind.explain.views import OVERALL, overall_effects
from modifind.result.selection_result import no_subgroups, no_tests


@dataclass(frozen=True)
class Overview:
    """Effects for all rows together, tests of whether there are any, and effects by subgroup; empty by default."""

    overall: dict[str, float] = field(default_factory=dict)
    tests: pd.DataFrame = field(default_factory=no_tests)
    subgroups: pd.DataFrame = field(default_factory=no_subgroups)

    @classmethod
    def of(
        cls,
        outcomes: PseudoOutcomes,
        y_bandwidth: float,
        table: FeatureTable,
        units: Sequence[Unit],
        n_rows: int,
        seed: np.random.SeedSequence,
    ) -> Overview:
        """Everything that can be found; a warning names what cannot.

        Parameters
        ----------
        outcomes : PseudoOutcomes
            What is averaged.
        y_bandwidth : float
            Bandwidth of the kernel on outcomes.
        table : FeatureTable
            Features of the rows that `outcomes` has.
        units : sequence of Unit
            What was tested.
        n_rows : int
            Rows of the whole table.
        seed : SeedSequence
            For the bootstrap of the effects for all rows together.
        """
        with one_thread():
            overall = attempt(OVERALL, overall_effects, outcomes, y_bandwidth, seed)
            tests = attempt(GLOBAL_TESTS, global_tests, outcomes, y_bandwidth, table, n_rows)
            subgroups = attempt(SUBGROUPS, subgroup_effects, outcomes, table, units)
        return cls(
            {} if overall is None else overall,
            no_tests() if tests is None else tests,
            no_subgroups() if subgroups is None else subgroups,
        )
