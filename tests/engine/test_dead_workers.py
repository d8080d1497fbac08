"""Workers that are killed change no result, and none outlives the process that started it."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import pytest
from joblib import delayed

from modifind import EffectLikelihood, ModifierSelector
from modifind._workers import RETRY_WARNING, WorkerError, results_of
from modifind.datasets import make_modifiers
from streams import cut

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")


def workers_of(parent):
    """Processes of joblib that a process has started, or that it left behind."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            state, above, group = (path / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[:3]
            command = (path / "cmdline").read_text(encoding="utf-8")
        except OSError:
            continue
        if parent in (int(above), int(group)) and state not in "ZX" and "popen_loky" in command:
            found.append(int(path.name))
    return found


def dying(folder, deaths):
    """A function that dies over some numbers, so many times; by value, so that workers need not import this module."""

    def square(number):
        import os
        import signal

        for k in range(deaths.get(number, 0)):
            if not os.path.exists(f"{folder}/{number}-{k}"):
                open(f"{folder}/{number}-{k}", "w", encoding="utf-8").close()
                os.kill(os.getpid(), signal.SIGKILL)
        return number**2

    return delayed(square)


@pytest.mark.parametrize(("ordered", "lazily"), [(True, True), (False, False)])
def test_calls_whose_workers_die_are_made_again(ordered, lazily, tmp_path):
    square = dying(tmp_path, {1: 2, 7: 2})
    calls = (square(k) for k in range(10))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        found = list(results_of(calls if lazily else list(calls), 2, ordered=ordered))
    assert (found if ordered else sorted(found)) == [k**2 for k in range(10)]
    assert {str(warning.message) for warning in caught} == {RETRY_WARNING}


def test_a_call_that_kills_every_worker_is_an_error_that_says_what_was_done(tmp_path):
    square = dying(tmp_path, {1: 99})
    with (
        pytest.warns(UserWarning, match="a worker process died"),
        pytest.raises(WorkerError, match="died while squaring, 3 times in a row"),
    ):
        list(results_of([square(k) for k in range(3)], 2, doing="squaring"))


def test_there_are_no_more_workers_than_calls():
    found = list(results_of([delayed(os.getpid)() for _ in range(2)], 2))  # those of other tests may be there already
    assert os.getpid() not in found
    assert list(results_of([delayed(os.getpid)()], 4)) == [os.getpid()]


class Killer(threading.Thread):
    """Kills a worker of this process now and then, and one for sure while a fit is under way."""

    def __init__(self, seed, kills):
        super().__init__(daemon=True)
        self.random, self.left, self.over = random.Random(seed), kills, threading.Event()
        self.lock, self.killed = threading.Lock(), False

    def run(self):
        while self.left and not self.over.wait(self.random.uniform(0.0, 1.0)):
            self.kill()

    def kill(self):
        with self.lock:
            workers = workers_of(os.getpid())
            if workers and self.left:
                os.kill(self.random.choice(workers), signal.SIGKILL)
                self.left -= 1
                self.killed = True

    def look(self, done, total):
        """Progress of the fit: one that is quicker than the first random moment loses a worker here."""
        if 0 < done < total and not self.killed:
            self.kill()


@pytest.mark.parametrize("how", ["whole", "pieces"])
def test_kills_at_random_moments_of_a_fit_change_nothing(how):
    data = make_modifiers("LinMean", n_samples=500, n_features=5, random_state=0)
    settings = {"statistic": EffectLikelihood("linear"), "sampler": "gaussian", "random_state": 0, "explain": False}
    settings |= {} if how == "whole" else {"max_train_rows": 250}

    def fitted(n_jobs, **more):
        selector = ModifierSelector(**settings, n_jobs=n_jobs, **more)
        if how == "whole":
            return selector.fit(data.X, data.y, treatment=data.treatment).result_
        return selector.fit(cut(data.X, data.y, data.treatment, 50)).result_

    alone = fitted(1)
    killer = Killer(seed=0, kills=2)
    killer.start()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        found = fitted(2, progress=killer.look)
    killer.over.set()
    killer.join()
    assert killer.killed
    assert found.table.equals(alone.table)
    assert found.checks.equals(alone.checks)
    assert {str(w.message) for w in caught} - set(alone.warnings) <= {RETRY_WARNING}


LONG = """
import os
import numpy as np
from joblib import delayed
from modifind._workers import results_of
import time

def work(array, k):
    os.write(1, b"at work\\n")  # at once, so that lines of two workers do not mix
    time.sleep(120)

if __name__ == "__main__":
    array = np.zeros(1_000_000)
    list(results_of([delayed(work)(array, k) for k in range(4)], 2))
"""


def shared_memory(pid):
    return [path for path in Path("/dev/shm").glob(f"*joblib*_{pid}_*")]


@pytest.mark.parametrize("end", ["SIGKILL", "SIGTERM"])
def test_no_worker_outlives_its_parent(end, tmp_path):
    (tmp_path / "long.py").write_text(LONG, encoding="utf-8")
    process = subprocess.Popen(
        [sys.executable, "long.py"], cwd=tmp_path, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout.readline() == "at work\n"
    assert 1 <= len(workers_of(process.pid)) <= 2
    assert shared_memory(process.pid)
    os.kill(process.pid, getattr(signal, end))
    process.wait()
    limit = time.monotonic() + 120
    while (workers_of(process.pid) or shared_memory(process.pid)) and time.monotonic() < limit:
        time.sleep(0.1)
    assert workers_of(process.pid) == []
    assert shared_memory(process.pid) == []
    process.stdout.close()
