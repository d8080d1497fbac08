"""Memory of a fit and of many in one process."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import modifind._system
from conftest import ROOT
from modifind import EffectLikelihood, ModifierSelector
from modifind._system import estimated_memory, free_memory
from modifind.cli.app import main
from modifind.datasets import make_modifiers
from modifind.nuisance.conditional import GaussianSampler

BENCHMARK = ROOT / "benchmarks" / "memory.py"


GROWTH = """
import gc, tracemalloc, warnings
from modifind import EffectLikelihood, ModifierSelector
from modifind.datasets import make_modifiers
warnings.simplefilter("ignore")
data = make_modifiers("LinMean", n_samples=120, n_features=5, random_state=0)
kept = []
tracemalloc.start()
for fit in range(8):
    selector = ModifierSelector(EffectLikelihood("linear"), sampler="gaussian", explain=False, random_state=0)
    kept += [selector.fit(data.X, data.y, treatment=data.treatment)] * (fit > 6)
    del selector
    gc.collect()
    print(tracemalloc.get_traced_memory()[0])
"""


def test_memory_does_not_grow_with_fits():
    """The first fits fill caches; the next leave less than a tenth of a fit, which pandas keeps of its own views."""
    shown = subprocess.run([sys.executable, "-c", GROWTH], capture_output=True, text=True, check=True, timeout=900)
    sizes = [int(size) for size in shown.stdout.split()]
    kept = sizes[7] - sizes[6]
    assert (sizes[6] - sizes[3]) / 3 < 0.1 * kept, sizes


MEASURED = """
import warnings
from modifind import ModifierSelector
from modifind.datasets import make_modifiers
warnings.simplefilter("ignore")
data = make_modifiers("NonlinMean", n_samples=4000, n_features=10, random_state=0)
ModifierSelector(random_state=0, explain=False).fit(data.X, data.y, treatment=data.treatment)
lines = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(int(lines["VmHWM"].split()[0]) * 1024)  # unlike ru_maxrss not that of the process which started this one
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads peak memory in kilobytes")
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system does not tell the peak of a process")
def test_the_estimate_is_near_a_measurement():
    shown = subprocess.run([sys.executable, "-c", MEASURED], capture_output=True, text=True, check=True, timeout=900)
    assert 0.7 < estimated_memory(4000, 10) / int(shown.stdout) < 1.4


def quick(data):
    selector = ModifierSelector(EffectLikelihood("linear"), sampler="gaussian", explain=False)
    return selector.fit(data.X, data.y, treatment=data.treatment)


def test_a_fit_that_needs_more_memory_than_is_free_is_warned_of(tmp_path, monkeypatch):
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:     100000 kB\n", encoding="utf-8")
    assert free_memory(str(tmp_path / "meminfo")) == 102_400_000
    assert free_memory(str(tmp_path / "none")) is None
    data = make_modifiers("LinMean", n_samples=200, n_features=5, random_state=0)
    monkeypatch.setattr(modifind._system, "free_memory", lambda: 102_400_000)
    with pytest.warns(UserWarning, match=r"this fit needs about 0\.2 GB of memory, and 0\.1 GB are free; read the"):
        selector = quick(data)
    assert not any("GB" in message for message in selector.result_.warnings)


def test_a_fit_that_runs_out_of_memory_is_one_line_that_says_what_to_do(tmp_path, monkeypatch, capsys):
    data = make_modifiers("LinMean", n_samples=200, n_features=5, random_state=0)
    monkeypatch.setattr(GaussianSampler, "fit", lambda *_, **__: np.empty(2**62, dtype=np.int8))
    with pytest.raises(MemoryError, match=r"out of memory \(.*\); read the table in batches \(from a file\)"):
        quick(data)
    data.X.assign(arm=data.treatment, change=data.y).to_csv(tmp_path / "data.csv", index=False)
    line = ["modifind", "select", str(tmp_path / "data.csv"), "--treatment", "arm", "--outcome", "change"]
    monkeypatch.setattr(sys, "argv", [*line, "--sampler", "gaussian"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    (last,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("modifind: error: ")]
    for option in ("--stream", "--train-rows", "--no-explain", "--jobs"):
        assert option in last
