"""All changes in a sweep that is done: where, how sure, from what to what.

The step model of `posterior`, on windows of the builds that were measured, each divided for as long
as a part of it has a step. A change that two windows see is one; each is looked at again between
its neighbours. The chance of a false one is spread over the windows (Bonferroni), and what it comes
to on the numbers at hand is found by shuffling them: builds that differ in nothing but noise can be
in any order.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from deconvoy.history.posterior import Build, Posterior, Step

# Builds that are looked at together, and how far two windows overlap.
WINDOW = 64
OVERLAP = 32

# Shuffles for the rate of false alarms.
SHUFFLES = 40

# Of the probability of a change, what its interval of positions has.
INSIDE = 0.95


@dataclass(frozen=True)
class Point:
    """A change: the position where it most likely is, the first and the last where it may be, how
    sure it is that there is one, and the step."""

    position: int
    first: int
    last: int
    probability: float
    step: Step


def changes(
    builds: Sequence[Build], weights: Sequence[float], least: float, confidence: float = 0.95
) -> list[Point]:
    """The changes among builds that were measured. `weights`, `least`: see `Posterior`; samples of
    one position are those of one build."""
    in_order = sorted((one for one in builds if one.samples), key=lambda b: b.position)
    if len(in_order) < 2:
        return []
    starts = range(0, max(1, len(in_order) - OVERLAP), OVERLAP)
    doubt = (1 - confidence) / len(starts)
    seen: set[int] = set()
    for start in starts:
        window = in_order[start : start + WINDOW]
        seen |= divide(window, weights, least, doubt)
    return settle(in_order, sorted(seen), weights, least, doubt)


def divide(
    window: Sequence[Build], weights: Sequence[float], least: float, doubt: float
) -> set[int]:
    """The positions of changes in a window, by dividing it at the likeliest for as long as there
    is one."""
    found: set[int] = set()
    parts = [list(window)]
    while parts:
        part = parts.pop()
        point = one_change(part, weights, least, doubt)
        if point is None:
            continue
        found.add(point.position)
        parts += [
            [one for one in part if one.position < point.position],
            [one for one in part if one.position >= point.position],
        ]
    return found


def one_change(
    part: Sequence[Build], weights: Sequence[float], least: float, doubt: float
) -> Point | None:
    """The likeliest change among builds in order, if it is sure that there is one."""
    if len(part) < 2:
        return None
    low, high = part[0].position, part[-1].position
    local = [Build(one.position - low, one.samples) for one in part]
    # At least where builds were measured there may be a change: inputs may be the same elsewhere.
    prior = list(weights[low : high + 1])
    if not any(prior[1:]):
        return None
    posterior = Posterior(prior, local, least)
    if posterior.nothing > doubt:
        return None
    mass = posterior.mass / posterior.mass.sum()
    order = np.argsort(-mass, kind="stable")
    count = int(np.searchsorted(np.cumsum(mass[order]), INSIDE)) + 1
    inside = order[:count]
    # Between two builds that were measured all are alike: the last is one that was.
    best = measured_from(local, int(order[0]))
    return Point(
        best + low,
        int(inside.min()) + low,
        int(inside.max()) + low,
        1 - posterior.nothing,
        posterior.step,
    )


def measured_from(builds: Sequence[Build], position: int) -> int:
    """The first that was measured, from a position on."""
    return next(one.position for one in builds if one.position >= position)


def settle(
    in_order: Sequence[Build],
    seen: Sequence[int],
    weights: Sequence[float],
    least: float,
    doubt: float,
) -> list[Point]:
    """Each change looked at between its neighbours; what is none there is left out, and so is one
    of two that turn out to be the same."""
    positions = [one.position for one in in_order]
    kept: list[Point] = []
    for place, position in enumerate(seen):
        before = kept[-1].position if kept else -1
        after = seen[place + 1] if place + 1 < len(seen) else math.inf
        at = int(np.searchsorted(positions, position))
        part = [
            one
            for one in in_order[max(0, at - WINDOW) : at + WINDOW]
            if before <= one.position < after
        ]
        point = one_change(part, weights, least, doubt)
        if point is not None and all(point.position != one.position for one in kept):
            kept.append(point)
    return kept


def false_alarms(
    builds: Sequence[Build],
    points: Sequence[Point],
    least: float,
    confidence: float = 0.95,
    seed: int = 1,
) -> float:
    """In what share of shuffles of the builds between two changes a change is seen: of these very
    numbers, as noisy as they are."""
    bounds = [-1, *(one.position for one in points), math.inf]
    parts = [
        [one for one in builds if low <= one.position < high]
        for low, high in itertools.pairwise(bounds)
    ]
    longest = max(parts, key=len, default=[])[:WINDOW]
    if len(longest) < 4:
        return math.nan
    chosen = np.random.default_rng(seed)
    alarms = 0
    for _ in range(SHUFFLES):
        order = chosen.permutation(len(longest))
        shuffled = [Build(place, longest[one].samples) for place, one in enumerate(order)]
        alarms += bool(changes(shuffled, [1.0] * len(longest), least, confidence))
    return alarms / SHUFFLES
