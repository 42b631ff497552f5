"""Medians with intervals, and what may be said of two of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.95

# The quantiles between which an interval lies.
TAILS = ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2)

# Of fewer samples next to nothing is known of the noise, and there is no interval.
LEAST_SAMPLES = 3

RESAMPLES = 5_000


@dataclass(frozen=True)
class Estimate:
    """A median with a bootstrap interval, in the unit of the samples."""

    median: float
    low: float
    high: float
    count: int

    @property
    def has_interval(self) -> bool:
        """Whether `low` and `high` are more than the range of the samples."""
        return self.count >= LEAST_SAMPLES

    def differs(self, other: Estimate) -> bool:
        """Whether the intervals of both lie apart: a cautious test of a difference."""
        if not (self.has_interval and other.has_interval):
            return False
        return self.low > other.high or self.high < other.low


def estimate(samples: Sequence[float], seed: int = 0) -> Estimate:
    """The median of `samples` and its 95 % percentile-bootstrap interval (Efron, 1979).

    The seed is fixed: the same samples give the same interval. With fewer than three samples the
    interval is their range, which is all that can be said.

    Raises ValueError when there are no samples.
    """
    if not samples:
        raise ValueError("no samples")
    values = np.sort(np.asarray(samples, dtype=float))
    median = float(np.median(values))
    if len(values) < LEAST_SAMPLES:
        return Estimate(median, float(values[0]), float(values[-1]), len(values))
    below, above = _medians(len(values), seed)
    low, high = np.quantile((values[below] + values[above]) / 2, TAILS)
    # Interpolation rounds, and may end a bit beyond the median.
    return Estimate(median, min(float(low), median), max(float(high), median), len(values))


@cache
def _medians(count: int, seed: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The two ranks between which the median of each resample of `count` sorted samples lies: they
    are the same for all samples of one number."""
    drawn = np.random.default_rng(seed).integers(0, count, (RESAMPLES, count))
    below, above = (count - 1) // 2, count // 2
    drawn.partition((below, above))
    return drawn[:, below].copy(), drawn[:, above].copy()


def quantiles(samples: Sequence[float], several: Sequence[float]) -> list[float]:
    """The `q`-quantile for each `q` from 0 to 1: the smallest sample that at least that share is
    not above (the inverse of the distribution function: never a value that was not measured)."""
    values = np.quantile(np.asarray(samples, dtype=float), several, method="inverted_cdf")
    return [float(value) for value in values]


def jain(shares: Sequence[float]) -> float:
    """Jain's fairness index of what threads got: 1 when all got the same, 1/n when one got all.

    Source: Jain, Chiu and Hawe, "A quantitative measure of fairness" (1984).
    """
    values = np.asarray(shares, dtype=float)
    squares = float((values**2).sum())
    return float(values.sum() ** 2 / (len(values) * squares)) if squares else 1.0
