"""Work spread over joblib's backends."""

import signal
import subprocess
import sys

import numpy as np
import pytest
from joblib import delayed, parallel_config

from modifind._workers import results_of


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


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="signals cannot be held back")
def test_the_first_workers_of_a_process_do_not_hear_of_ctrl_c():
    code = """
import signal
from joblib import delayed
from modifind._workers import results_of
print(*results_of((delayed(signal.pthread_sigmask)(signal.SIG_BLOCK, []) for _ in range(2)), 2))
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=True)
    assert found.stdout.count("SIGINT") == 2
