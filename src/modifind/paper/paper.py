"""Figures that the paper reports (Chikahara, Yamada and Kashima, UAI 2022), to be shown beside ours.

Rates are TPR, its standard deviation, FPR and its standard deviation over 50 runs.
"""

from __future__ import annotations

Rates = tuple[float, float, float, float]


def _by_neurons(neurons: tuple[int, ...], **kinds: list[Rates]) -> dict[tuple[str, int], Rates]:
    return {(kind, n): rates for kind, row in kinds.items() for n, rates in zip(neurons, row, strict=True)}


# Tables 5 and 6, in the appendix: n = 1000, by the number of neurons.
PROPENSITY_NEURONS = _by_neurons(
    (25, 50, 100, 200),
    LinMean=[(0.80, 0.21, 0.06, 0.06), (0.79, 0.22, 0.06, 0.07), (0.84, 0.14, 0.08, 0.06), (0.84, 0.16, 0.08, 0.06)],
    NonlinMean=[(0.95, 0.10, 0.04, 0.04), (0.94, 0.12, 0.04, 0.04), (0.98, 0.06, 0.03, 0.03), (0.97, 0.08, 0.05, 0.04)],
    LinVar=[(0.71, 0.19, 0.08, 0.07), (0.73, 0.19, 0.07, 0.08), (0.77, 0.16, 0.10, 0.07), (0.76, 0.18, 0.09, 0.07)],
    NonlinVar=[(0.64, 0.25, 0.04, 0.04), (0.62, 0.25, 0.04, 0.04), (0.63, 0.26, 0.04, 0.04), (0.64, 0.25, 0.04, 0.04)],
)
CVAE_NEURONS = _by_neurons(
    (16, 64, 128, 256),
    LinMean=[(0.82, 0.18, 0.08, 0.06), (0.82, 0.17, 0.07, 0.06), (0.79, 0.22, 0.06, 0.07), (0.83, 0.16, 0.10, 0.07)],
    NonlinMean=[(0.96, 0.09, 0.04, 0.04), (0.98, 0.06, 0.03, 0.03), (0.94, 0.12, 0.04, 0.04), (0.94, 0.05, 0.05, 0.04)],
    LinVar=[(0.68, 0.19, 0.07, 0.05), (0.66, 0.17, 0.06, 0.05), (0.73, 0.19, 0.07, 0.08), (0.70, 0.16, 0.08, 0.07)],
    NonlinVar=[(0.58, 0.25, 0.02, 0.03), (0.56, 0.25, 0.03, 0.03), (0.62, 0.25, 0.04, 0.04), (0.60, 0.20, 0.04, 0.05)],
)
# Its figure of synthetic data is not tabulated; n = 1000 is the column of 50 neurons above.
SYNTHETIC: dict[tuple[str, int], Rates] = {
    (kind, 1000): rates for (kind, neurons), rates in PROPENSITY_NEURONS.items() if neurons == 50
}
# Table 4, in the appendix: n = 2000.
COUNTEREXAMPLES: dict[tuple[str, int], Rates] = {
    ("LinCovar", 2000): (0.02, 0.06, 0.02, 0.02),
    ("NonlinCovar", 2000): (0.04, 0.08, 0.02, 0.02),
}
# Run times in the text, n = 2000, LinMean, in seconds on its authors' machine.
SECONDS = {"preset-sums": 10_360.0, "si-em": 27.0}
# Table 2: mean and standard deviation of the adjusted p-value over 50 runs.
NHANES_P = {"age": (0.0075, 0.0305), "female": (0.0046, 0.0269), "cigarettes_month": (0.0, 0.0)}
NHANES_SIEM = ("age", "female")
