"""Work spread over joblib's backends."""

import pytest
from joblib import delayed, parallel_config

from modifind.parallel import results_of


@pytest.mark.parametrize("backend", ["loky", "threading", "multiprocessing"])
def test_results_come_in_order_from_every_backend(backend):
    with parallel_config(backend=backend, n_jobs=2):
        assert list(results_of((delayed(abs)(-number) for number in range(5)), None)) == list(range(5))
