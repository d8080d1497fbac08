"""What is said of a table as a whole, beside what is said of each feature."""

from __future__ import annotations

from dataclasses import dataclass, field

import pandas as pd

from modifind.result.selection_result import no_subgroups, no_tests


@dataclass(frozen=True)
class Overview:
    """Effects for all rows together, tests of whether there are any, and effects by subgroup; empty by default."""

    overall: dict[str, float] = field(default_factory=dict)
    tests: pd.DataFrame = field(default_factory=no_tests)
    subgroups: pd.DataFrame = field(default_factory=no_subgroups)
