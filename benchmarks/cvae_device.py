"""Train the conditional autoencoder on CPU and GPU from the same seed: times, and how far the laws are apart.

python benchmarks/cvae_device.py --n 2000
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from threadpoolctl import threadpool_limits

from modifind.datasets import make_modifiers
from modifind.features import read_features
from modifind.samplers import CVAESampler


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, nargs="+", default=[1000, 2000])
    parser.add_argument("--d", type=int, default=30)
    args = parser.parse_args()
    print("| n | d | CPU, one thread (s) | GPU (s) | ratio | ELBO difference (nats) | mean difference of laws (sd) |")
    print("|---|---|---|---|---|---|---|")
    for n in args.n:
        data = make_modifiers("LinMean", n_samples=n, n_features=args.d, random_state=0)
        table = read_features(data.X)
        fitted, seconds = {}, {}
        for device in ("cuda", "cuda", "cpu"):  # the first GPU run also starts CUDA
            start = time.perf_counter()
            fitted[device] = CVAESampler(device=device).fit(table, data.treatment, np.random.SeedSequence(0))
            seconds[device] = time.perf_counter() - start
        with threadpool_limits(1):
            draws = {
                device: np.stack([s.law(m).draw(np.random.default_rng(m), 200).mean(0) for m in range(args.d)])
                for device, s in fitted.items()
            }
        elbo = np.abs(fitted["cpu"].held_out_elbo_ - fitted["cuda"].held_out_elbo_).max()
        apart = np.sqrt(np.mean((draws["cpu"] - draws["cuda"]) ** 2))
        ratio = seconds["cpu"] / seconds["cuda"]
        cells = [f"{seconds['cpu']:.1f}", f"{seconds['cuda']:.1f}", f"{ratio:.1f}", f"{elbo:.1e}", f"{apart:.1e}"]
        print(f"| {n} | {args.d} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
