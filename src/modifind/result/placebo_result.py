"""Results of placebo runs: frozen, serialisable, with a verbal summary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import pandas as pd
from scipy.stats import binom

from modifind.data.words import counted

UNLIKELY = 0.05
COLUMNS = {"run": "int", "feature": "text", "p_value": "float", "selected": "bool"}  # with the types of their values


@dataclass(frozen=True, eq=False)
class PlaceboResult:
    """Result of analyses with placebo treatments.

    Attributes
    ----------
    table : DataFrame
        One row per run and feature: run (1, 2, ...), feature, p_value and selected.
    n_asked : int
        Number of runs requested; fewer are in the table after an interruption.
    chance : float
        Share of runs that may find something by chance: the level of the selection, or without adjustment over features
        what so many single tests give.
    drawn : str
        How the treatment was drawn.

    Examples
    --------
    >>> import pandas as pd
    >>> runs = {"run": [1, 1, 2, 2], "feature": ["age", "bmi"] * 2, "p_value": [0.4, 0.7, 0.2, 0.9], "selected": False}
    >>> result = PlaceboResult(pd.DataFrame(runs), n_asked=2, chance=0.05, drawn="by a coin")
    >>> result.text, result.ok
    ('0 of 2 placebo treatments found anything.', True)
    """

    table: Annotated[pd.DataFrame, COLUMNS]
    n_asked: int
    chance: float
    drawn: str

    @property
    def n_runs(self) -> int:
        """Number of completed runs."""
        return int(self.table["run"].nunique())

    @property
    def n_found(self) -> int:
        """Number of runs that selected any feature."""
        return int(self.table.groupby("run")["selected"].any().sum())

    @property
    def ok(self) -> bool:
        """Whether there are completed runs and no more of them selected features than chance allows."""
        return self.n_runs > 0 and not binom.sf(self.n_found - 1, self.n_runs, self.chance) < UNLIKELY

    @property
    def text(self) -> str:
        """The result in a sentence.

        Examples
        --------
        >>> table = pd.DataFrame({"run": [1, 2], "feature": "age", "p_value": [0.4, 0.9], "selected": False})
        >>> PlaceboResult(table, 2, 0.05, "a coin").text
        '0 of 2 placebo treatments found anything.'
        """
        stopped = f" ({self.n_asked} were asked for)" if self.n_runs < self.n_asked else ""
        if not self.n_found:
            return f"0 of {counted(self.n_runs, 'placebo treatment')} found anything{stopped}."
        return f"{self.n_found} of {counted(self.n_runs, 'placebo treatment')} found something{stopped}."

    @property
    def warning(self) -> str:
        """Advice if more runs selected features than chance allows; otherwise empty."""
        if self.ok or not self.n_runs:
            return ""
        most = int(binom.isf(UNLIKELY, self.n_runs, self.chance))
        return (
            f"{self.n_found} of {self.n_runs} placebo treatments, which do nothing, found something; by chance it "
            f"would be at most {most}. P-values of this table are too small: distrust what is selected, and try "
            "another sampler, known propensity scores, a transformed outcome, or clusters for rows that belong together"
        )

    def __repr__(self) -> str:
        return f"PlaceboResult({self.text})"
