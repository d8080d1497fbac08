"""Memory of many fits in one process."""

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parent.parent / "benchmarks" / "memory.py"


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads resident memory from /proc")
def test_memory_does_not_grow_over_fifty_fits():
    line = [sys.executable, str(BENCHMARK), "--fits", "50", "--rows", "120", "--features", "5", "--quick"]
    shown = subprocess.run(line, capture_output=True, text=True, check=True, timeout=300).stdout.splitlines()
    megabytes = {int(fit): float(size) for fit, size in (line.strip("| ").split(" | ") for line in shown[2:])}
    # Tables of 120 rows are 5 kB: a fit that kept its own would add 0.2 MB, one that kept its models much more.
    assert megabytes[50] - megabytes[10] < 4.0, megabytes
