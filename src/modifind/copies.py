"""Columns that say the same as another one."""

from __future__ import annotations

import numpy as np
from scipy.stats import rankdata

from modifind.features import FeatureTable


def monotone_copies(table: FeatureTable, threshold: float = 0.999) -> frozenset[int]:
    """Continuous features whose ranks are those of another: the same thing in other units, or its logarithm.

    Where values are missing only the others are ranked, and missing ones have the mean rank: copies that miss the same
    values are found.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> from modifind.features import read_features
    >>> x = np.random.default_rng(0).normal(size=(50, 2))
    >>> sorted(monotone_copies(read_features(pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "exp_a": np.exp(x[:, 0])}))))
    [0, 2]
    """
    columns = [m for m in range(table.n_features) if not table.n_levels(m) and not table.is_constant(m)]
    ranks = rankdata(table.values[:, columns], axis=0)
    for k, m in enumerate(columns):
        if m in table.incomplete:
            observed = ~np.isnan(table.values[:, m])
            own = rankdata(table.values[observed, m])
            ranks[:, k] = own.mean()
            ranks[observed, k] = own
    ranks -= ranks.mean(axis=0)
    ranks /= np.sqrt(np.maximum((ranks**2).sum(axis=0), np.finfo(float).tiny))
    alike = np.abs(ranks.T @ ranks) > threshold
    return frozenset(columns[k] for k in np.flatnonzero(alike.sum(axis=1) > 1))
