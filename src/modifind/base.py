"""Base class of the selectors: the result behind scikit-learn's selector interface."""

from __future__ import annotations

from itertools import compress
from typing import TYPE_CHECKING, Any

import narwhals as nw
import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.feature_selection import SelectorMixin
from sklearn.utils.validation import check_is_fitted

from modifind.data.containers import as_frame, eager, is_distributed
from modifind.result.selection_result import SelectionResult

if TYPE_CHECKING:
    from sklearn.utils import Tags


class BaseModifierSelector(SelectorMixin, BaseEstimator):
    """A selector whose `fit` stores its result in `result_`."""

    result_: SelectionResult

    def __sklearn_tags__(self) -> Tags:
        """Tags: an outcome is required, features may be text or categories, and selected columns keep their type."""
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.string = tags.input_tags.categorical = True
        tags.input_tags.allow_nan = getattr(self, "missing", "error") != "error"
        if tags.transformer_tags is not None:
            tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _get_support_mask(self) -> Any:
        check_is_fitted(self, "result_")
        chosen = set(self.result_.selected_columns)
        return np.array([name in chosen for name in self.feature_names_in_], dtype=bool)

    def transform(self, X: Any) -> Any:
        """Keep the selected columns of a table, which may have more columns than those of `fit`.

        A DataFrame of any supported library stays one.
        """
        support, X, seen = self.get_support(), _columns_of(X), list(self.feature_names_in_)
        named = hasattr(X, "columns")
        if len(X.shape) != 2 or X.shape[1] < support.size or (X.shape[1] > support.size and not named):
            raise ValueError(f"X must have the {support.size} columns seen in fit; found shape {X.shape}")
        if not named:
            return X[:, support]
        # Other columns than features, such as the outcome, may stand between them.
        columns = [name for name in X.columns if str(name) in set(seen)]
        if [str(name) for name in columns] != seen:
            raise ValueError("the columns of X are not those seen in fit, in the same order")
        return nw.to_native(X[list(compress(columns, support))], pass_through=True)

    def _repr_html_(self) -> str:
        """HTML of the result, or of the settings before `fit`, as scikit-learn shows them."""
        return self.result_._repr_html_() if hasattr(self, "result_") else super()._repr_html_()

    def _keep(self, names: tuple[str, ...], result: SelectionResult) -> None:
        self.result_ = result
        self.n_features_in_ = len(names)
        self.feature_names_in_ = np.array(names, dtype=object)


def _columns_of(X: Any) -> Any:
    """Columns of an array or of a DataFrame of any supported library."""
    if isinstance(X, np.ndarray | list | tuple):
        return np.asarray(X)
    if isinstance(X, pd.DataFrame) or is_distributed(X):
        return X
    given = eager(X)
    return given if isinstance(given, nw.DataFrame) else as_frame(X)
