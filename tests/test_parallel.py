"""Work spread over joblib's backends."""

import numpy as np
import pytest
from joblib import delayed, parallel_config

from modifind.parallel import results_of


@pytest.mark.parametrize("backend", ["loky", "threading", "multiprocessing"])
def test_results_come_in_order_from_every_backend(backend):
    with parallel_config(backend=backend, n_jobs=2):
        assert list(results_of((delayed(abs)(-number) for number in range(5)), None)) == list(range(5))


def _is_mapped(array):
    return isinstance(array, np.memmap)


@pytest.mark.parametrize("shared", [True, False])
def test_arrays_of_single_calls_leave_no_files(shared):
    jobs = (delayed(_is_mapped)(np.zeros(200_000) + k) for k in range(3))
    assert list(results_of(jobs, 2, shared=shared)) == [shared] * 3
