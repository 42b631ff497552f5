"""Where a metric changed, as a probability of each revision: pure, reads no clock and no file.

A step model. Revisions before the change have one level, from it on another; a build differs from
its level a bit (layout of code and data), and each run from its build (noise with heavy tails).
Levels, the noise and the difference of builds are unknown: they are integrated over grids, not
estimated, so that few runs give little confidence.

Sources: Burnashev and Zigangirov, "An interval estimation problem for controlled observations"
(1974); Waeber, Frazier and Henderson, "Bisection search with noisy responses" (2013); for the
difference of builds, Mytkowicz et al., "Producing wrong data without doing anything obviously
wrong!" (2009); for heavy tails, Lange, Little and Taylor, "Robust statistical modeling using the
t distribution" (1989).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import special

Floats = NDArray[np.float64]

# Degrees of freedom of the noise of a run: an outlier in thirty runs moves nothing.
FREEDOM = 4.0

# The noise of a run, in units of what was seen within builds.
NOISES = 2.0 ** np.arange(-1.5, 1.6, 0.5)

# How far a build may be from its level, in units of the least effect, and how often it is.
SPREADS = ((0.0, 0.4), (0.1, 0.3), (0.25, 0.2), (0.5, 0.1))

# How large a step is expected, in units of the least effect: half of all are beyond it. A Cauchy
# distribution, as it is not known.
EXPECTED_STEP = 4.0

# Probability, before anything is measured, that nothing has changed.
NOTHING = 0.5

# Points of the grid of levels: evenly, and about each build.
EVEN = 48
ABOUT = (-3.0, -2.0, -1.25, -0.6, 0.0, 0.6, 1.25, 2.0, 3.0)

# And no more of them in all: many builds would make each decision take long.
MOST_LEVELS = 250

# The quantiles between which an interval of the step lies.
TAILS = (0.025, 0.975)


@dataclass(frozen=True)
class Build:
    """What was measured of one build: `position` of its revision, from 0 on; logarithms, or plain
    numbers, of the metric, one a run."""

    position: int
    samples: tuple[float, ...]


@dataclass(frozen=True)
class Step:
    """From which level to which, and how far, each the middle and the ends of its interval."""

    old: float
    new: float
    size: float
    low: float
    high: float


class Posterior:
    """What `builds` say of where the change is.

    `weights`: prior weight, of each position, that the change is there (shape `n`; that of the
    first is of no use, as nothing is before it; 0 where a revision cannot be it). `least`: effects
    below it are none, in the unit of the samples. There must be a build with a run.
    """

    def __init__(self, weights: Sequence[float], builds: Sequence[Build], least: float) -> None:
        self.builds = sorted((one for one in builds if one.samples), key=lambda b: b.position)
        self.least = least
        self.noise = noise_of(self.builds, least)
        prior = np.asarray(weights, dtype=float).copy()
        prior[0] = 0.0
        self._prior = prior / prior.sum() if prior.sum() > 0 else prior
        self._levels = grid(self.builds, self.noise, least)
        self._compute()

    def _compute(self) -> None:
        levels, least = self._levels, self.least
        widths = np.gradient(levels)
        # Prior of the first level, and of the second one when the first is known: what is less
        # than the least effect is none, and what is more is anything, less often the larger.
        far = levels[None, :] - levels[:, None]
        is_step = np.abs(far) >= least
        wide = EXPECTED_STEP * least
        cauchy = 1 / (1 + (far / wide) ** 2)
        step = np.where(is_step, cauchy * widths[None, :], 0.0)
        # Its integral is known; on this grid, where it is all there is of it, it may be less.
        whole = wide * (math.pi - 2 * math.atan(least / wide))
        step /= np.maximum(step.sum(axis=1, keepdims=True), whole)
        none = np.where(is_step, 0.0, widths[None, :]) / (2 * least)
        none /= np.maximum(none.sum(axis=1, keepdims=True), 1.0)
        first = widths / widths.sum()

        logs, log_weights = self._likelihoods()
        # Before the k-th of the places between builds, and from it on: (parts + 1, hidden, level).
        before = np.concatenate([np.zeros_like(logs[:1]), np.cumsum(logs, axis=0)])
        after = before[-1] - before
        top_before = before.max(axis=2, keepdims=True)
        top_after = after.max(axis=2, keepdims=True)
        left = np.exp(before - top_before) * first
        right = np.exp(after - top_after)
        scale = (top_before + top_after)[:, :, 0] + log_weights
        peak = scale.max()
        shift = np.exp(scale - peak)
        with_step = np.einsum("phl,phl->ph", left @ step, right) * shift
        without = np.einsum("phl,phl->ph", left @ none, right) * shift
        self._joint = left, right, shift, step

        # A position is in the part that as many builds are before.
        at = np.array([build.position for build in self.builds])
        self._part = np.searchsorted(at, np.arange(len(self._prior)), side="left")
        changed = self._prior * with_step.sum(axis=1)[self._part] * (1 - NOTHING)
        nothing = float((self._prior * without.sum(axis=1)[self._part]).sum()) * NOTHING
        total = float(changed.sum()) + nothing
        self.nothing = nothing / total if total > 0 else 1.0
        self.mass: Floats = changed / total if total > 0 else changed

    def _likelihoods(self) -> tuple[Floats, Floats]:
        """Of each build, of what is hidden (noise and spread of builds), of each level: the
        logarithm; and that of the prior weight of what is hidden."""
        levels = self._levels
        widths = np.gradient(levels)
        noises = NOISES * self.noise
        constant = special.gammaln((FREEDOM + 1) / 2) - special.gammaln(FREEDOM / 2)
        constant -= 0.5 * math.log(FREEDOM * math.pi)
        samples = np.concatenate([np.asarray(build.samples) for build in self.builds])
        starts = np.cumsum([0, *(len(build.samples) for build in self.builds)])[:-1]
        squares = ((samples[:, None] - levels[None, :])[:, None, :] / noises[None, :, None]) ** 2
        each = -(FREEDOM + 1) / 2 * np.log1p(squares / FREEDOM)
        each += (constant - np.log(noises))[None, :, None]
        alone = np.add.reduceat(each, starts, axis=0)
        found, weights = [], []
        for spread, weight in SPREADS:
            weights += [math.log(weight / len(noises))] * len(noises)
            if spread == 0.0:
                found.append(alone)
                continue
            away = (levels[:, None] - levels[None, :]) / (spread * self.least)
            kernel = np.exp(-0.5 * away**2) * widths[None, :]
            kernel /= kernel.sum(axis=1, keepdims=True)
            top = alone.max(axis=2, keepdims=True)
            blurred = np.exp(alone - top) @ kernel.T
            found.append(np.log(np.maximum(blurred, 1e-300)) + top)
        return np.concatenate(found, axis=1), np.array(weights)

    def on_new_side(self) -> Floats:
        """Of each position: the probability that the change is there or before, if there is one."""
        total = self.mass.sum()
        return np.cumsum(self.mass) / total if total > 0 else np.zeros_like(self.mass)

    @cached_property
    def step(self) -> Step:
        """The levels and the step, if there is one."""
        left, right, shift, prior = self._joint
        share = np.bincount(self._part, weights=self._prior, minlength=len(left))
        count = left.shape[2]
        weighted = (left * (shift * share[:, None])[:, :, None]).reshape(-1, count)
        weight = (weighted.T @ right.reshape(-1, count)) * prior
        total = weight.sum()
        if total <= 0:
            return Step(math.nan, math.nan, math.nan, math.nan, math.nan)
        weight /= total
        levels = self._levels
        old = float((weight.sum(axis=1) * levels).sum())
        new = float((weight.sum(axis=0) * levels).sum())
        far = (levels[None, :] - levels[:, None]).ravel()
        order = np.argsort(far)
        below = np.cumsum(weight.ravel()[order])
        low, middle, high = np.interp((TAILS[0], 0.5, TAILS[1]), below, far[order])
        return Step(old, new, float(middle), float(low), float(high))


def noise_of(builds: Sequence[Build], least: float) -> float:
    """How far runs of one build are apart, as one standard deviation, roughly: by the median of the
    distances from each build's median, which a few outliers do not move. Never 0, as counts may be
    the same each time."""
    away = [
        abs(sample - middle) * math.sqrt(count / (count - 1))
        for build in builds
        if (count := len(build.samples)) > 1
        for middle in [float(np.median(build.samples))]
        for sample in build.samples
    ]
    floor = least / 20
    if len(away) < 2:
        return max(least / 2, floor)
    # Of an odd number one is its own median, of three a third is 0: the mean of squares is not
    # moved by that, the median is; the smaller one is taken, when it is not far from it.
    middle = float(np.median(away)) / 0.6745
    root = math.sqrt(sum(one * one for one in away) / len(away))
    return max(min(max(middle, root / 2), root), floor)


def grid(builds: Sequence[Build], noise: float, least: float) -> Floats:
    """Levels to integrate over: all that builds can have, more of them where builds are."""
    samples = np.concatenate([np.asarray(build.samples) for build in builds])
    margin = 4 * max(noise, least)
    points = [np.linspace(samples.min() - margin, samples.max() + margin, EVEN)]
    for build in builds:
        middle, count = float(np.median(build.samples)), len(build.samples)
        width = noise / math.sqrt(count)
        points.append(middle + width * np.asarray(ABOUT))
    several = np.unique(np.concatenate(points))
    # Those that lie closer together than matters are one.
    close = noise / math.sqrt(max(len(build.samples) for build in builds)) / 4
    kept = apart(several, close)
    while len(kept) > MOST_LEVELS:
        close *= 1.5
        kept = apart(several, close)
    return np.asarray(kept)


def apart(points: Floats, close: float) -> list[float]:
    """Of points in order, those that are no closer together."""
    kept = [float(points[0])]
    for point in points[1:]:
        if point - kept[-1] >= close:
            kept.append(float(point))
    return kept
