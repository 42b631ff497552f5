"""How the time for the same work falls with workers: the laws of Amdahl and of Gunther.

With N workers a runtime does

    X(N) = X(1) N / (1 + contention (N - 1) + coherency N (N - 1))

times the work in a second. Contention is the share of the work that must be done one after the
other; coherency what each pair of workers costs one another, from which on more workers are slower.
Amdahl's law is the one without coherency.

Sources: G. Amdahl, "Validity of the single processor approach" (1967); N. Gunther, "A general
theory of computational scalability based on rational functions" (2008).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deconvoy.bench.results import Result
from deconvoy.bench.stats import TAILS, Estimate
from deconvoy.bench.summary import Key, cells

# A law with two terms beside the speed of one worker says something of so many worker counts.
LEAST_COUNTS = 3

# So many workers are predicted.
PREDICTED = 64

Floats = NDArray[np.float64]

# Of runs, for the intervals.
RESAMPLES = 500

# Scenarios that do the same work whatever the number of workers, and are timed as a whole.
SAME_WORK = ("countdown", "fib", "kmeans", "knn", "trees", "format")


@dataclass(frozen=True)
class Law:
    """The terms and what they predict, as medians with intervals over resampled runs.

    `contention` and `coherency` are shares; `speedup`: of `PREDICTED` workers over one; `best`: the
    number of workers beyond which more are slower, if coherency costs anything.
    """

    contention: Estimate
    coherency: Estimate
    speedup: Estimate
    best: float | None


@dataclass(frozen=True)
class Scaling:
    """Of one runtime, scenario and mode: the worker counts measured, and both laws. `beyond`: some
    are more than the cores, so that what cores cannot give counts as serial work, too."""

    key: Key
    counts: tuple[int, ...]
    beyond: bool
    amdahl: Law
    universal: Law


def terms(counts: Floats, times: Floats, coherent: bool) -> Floats:
    """The least-squares terms (time of one worker, contention, coherency) of each row of `times`,
    which has one time a count: an array of as many rows, and three columns.

    T(N) = p / N + s + c (N - 1) is linear in what is done in parallel, what one after the other,
    and what pairs cost one another, none of them below 0: T(1) = p + s, contention s / T(1),
    coherency c / T(1). Each time counts by its own size.
    """
    columns = np.stack([1 / counts, np.ones_like(counts), counts - 1], axis=1)
    matrix = columns / times[:, :, None]
    best = np.zeros((len(times), 3))
    least = np.full(len(times), np.inf)
    # Which of the three are above 0: there are few cases, and all rows are solved at once.
    cases = [[0], [1], [0, 1], *([[0, 2], [1, 2], [0, 1, 2]] if coherent else [])]
    for chosen in cases:
        part = matrix[:, :, chosen]
        transposed = part.swapaxes(1, 2)
        ones = np.ones((len(times), len(counts), 1))
        found = np.linalg.solve(transposed @ part, transposed @ ones)
        error = ((part @ found - ones) ** 2).sum(axis=(1, 2))
        better = (found >= 0).all(axis=(1, 2)) & (error < least)
        least[better] = error[better]
        best[better] = 0
        best[np.ix_(better, chosen)] = found[better, :, 0]
    one = best[:, 0] + best[:, 1]
    return np.stack([one, best[:, 1] / one, best[:, 2] / one], axis=1)


def speedup(workers: ArrayLike, contention: ArrayLike, coherency: ArrayLike) -> Floats:
    """Of so many workers over one; each a number or an array."""
    count, serial, cost = (np.asarray(one, float) for one in (workers, contention, coherency))
    gained: Floats = count / (1 + serial * (count - 1) + cost * count * (count - 1))
    return gained


def law(samples: Mapping[int, Sequence[float]], coherent: bool, seed: int = 0) -> Law:
    """The law of these times in seconds, by worker count."""
    counts = np.array(sorted(samples), dtype=float)
    several = [np.asarray(samples[int(count)], dtype=float) for count in counts]
    generator = np.random.default_rng(seed)
    medians = np.empty((RESAMPLES + 1, len(several)))
    for place, times in enumerate(several):
        drawn = generator.integers(0, len(times), (RESAMPLES, len(times)))
        medians[0, place] = np.median(times)
        medians[1:, place] = np.median(times[drawn], axis=1)
    _, contention, coherency = terms(counts, medians, coherent).T
    gained = speedup(PREDICTED, contention, coherency)
    runs = min(map(len, several))
    share, cost = _first_with_interval(contention, runs), _first_with_interval(coherency, runs)
    best = None
    if cost.median > 0:
        best = float(np.sqrt(max(1 - share.median, 0) / cost.median))
    return Law(share, cost, _first_with_interval(gained, runs), best)


def _first_with_interval(values: Floats, runs: int) -> Estimate:
    """The value of all runs comes first, then those of the resamples."""
    first = float(values[0])
    low, high = np.quantile(values[1:], TAILS)
    return Estimate(first, min(float(low), first), max(float(high), first), runs)


def scalings(result: Result) -> list[Scaling]:
    """One for each runtime, scenario and mode with three or more worker counts; one worker of mode
    `sequential` counts with every other mode of the same runtime."""
    found = cells(result)
    several: dict[Key, dict[int, list[float]]] = {}
    for key, cell in found.items():
        is_same = key.scenario.partition("-")[0] in SAME_WORK and key.workers > 0
        if is_same and "elapsed_s" in cell.estimates:
            group = replace(key, workers=0)
            several.setdefault(group, {})[key.workers] = cell.samples("elapsed_s")
    made = []
    for group, samples in several.items():
        one = several.get(replace(group, mode="sequential"), {})
        by_count = one | samples if group.mode != "sequential" else samples
        if len(by_count) >= LEAST_COUNTS:
            laws = (law(by_count, coherent) for coherent in (False, True))
            beyond = max(by_count) > result.cores(group.machine)
            made.append(Scaling(group, tuple(sorted(by_count)), beyond, *laws))
    return made
