"""Medians with intervals, and what may be said of two of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

CONFIDENCE = 0.95
RESAMPLES = 5_000


@dataclass(frozen=True)
class Estimate:
    """A median with a bootstrap interval, in the unit of the samples."""

    median: float
    low: float
    high: float
    count: int

    def differs(self, other: Estimate) -> bool:
        """Whether the intervals of both lie apart: a cautious test of a difference."""
        return self.low > other.high or self.high < other.low


def estimate(samples: Sequence[float], seed: int = 0) -> Estimate:
    """The median of `samples` and its 95 % percentile-bootstrap interval (Efron, 1979).

    The seed is fixed: the same samples give the same interval. With fewer than three samples the
    interval is their range, which is all that can be said.

    Raises ValueError when there are no samples.
    """
    if not samples:
        raise ValueError("no samples")
    values = np.asarray(samples, dtype=float)
    median = float(np.median(values))
    if len(values) < 3:
        return Estimate(median, float(values.min()), float(values.max()), len(values))
    from scipy.stats import bootstrap

    if values.min() == values.max():
        return Estimate(median, median, median, len(values))
    interval = bootstrap(
        (values,),
        np.median,
        n_resamples=RESAMPLES,
        confidence_level=CONFIDENCE,
        method="percentile",
        random_state=seed,
    ).confidence_interval
    # Interpolation rounds, and may end a bit beyond the samples.
    low = max(float(interval.low), float(values.min()))
    high = min(float(interval.high), float(values.max()))
    return Estimate(median, min(low, median), max(high, median), len(values))


def quantile(samples: Sequence[float], q: float) -> float:
    """The `q`-quantile, `q` from 0 to 1: the smallest sample that at least that share is not above
    (the inverse of the distribution function: never a value that was not measured)."""
    return float(np.quantile(np.asarray(samples, dtype=float), q, method="inverted_cdf"))


def jain(shares: Sequence[float]) -> float:
    """Jain's fairness index of what threads got: 1 when all got the same, 1/n when one got all.

    Source: Jain, Chiu and Hawe, "A quantitative measure of fairness" (1984).
    """
    values = np.asarray(shares, dtype=float)
    squares = float((values**2).sum())
    return float(values.sum() ** 2 / (len(values) * squares)) if squares else 1.0
