"""Which revision to measure next, and when it is enough: decisions alone, no clock, no file.

A `Finder` is told what was built and what was measured, and says what to do next, until it has an
answer. It measures where that tells most of where the change is, for what it costs: the mutual
information of the side that a revision is on and the mean of its runs. What is built already costs
no build; a revision near one that could not be built is likely not to build, either.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from deconvoy.history.posterior import Build, Floats, Posterior
from deconvoy.history.verdict import BATCH, Limits, Outcome, Verdict, Wish

# Of how many revisions one is expected not to build, before it is known; near one that did not.
FAILS, FAILS_NEAR, NEAR = 0.1, 0.6, 3.0

# How much dearer a build is than a batch of runs, as long as nobody has measured it.
BUILD_COST = 6.0

# A side with less than this share of the other's runs is measured again where it is built.
LEAST_SHARE = 1 / 3

# Runs of one revision beyond which more of them tell nothing of where the change is.
MOST_RUNS = 60

# So many failures in a row at an end are a span, which is gone through in strides.
STRIDES_AFTER = 3

# So many that cannot be measured, and none that can, are a mistake in how it is done.
HOPELESS_AFTER = 24

# A build that is so many times its own uncertainty away from both levels has a third one.
THIRD_LEVEL = 6.0


@dataclass
class Finder:
    """One range of revisions, `weights` of which say how likely the change is there (0: cannot be:
    it is built from the same files as the one before). `known`: builds of a wider range; what is
    before this one's first revision is told as of that. `built`: what costs no build."""

    weights: Sequence[float]
    limits: Limits
    build_cost: float = BUILD_COST
    samples: dict[int, list[float]] = field(default_factory=dict)
    known: list[Build] = field(default_factory=list)
    failed: set[int] = field(default_factory=set)
    built: set[int] = field(default_factory=set)
    sequence: list[tuple[int, float]] = field(default_factory=list)
    known_runs: int = 0
    low: int = 0
    high: int = -1
    others: bool = False

    def __post_init__(self) -> None:
        if self.high < 0:
            self.high = len(self.weights) - 1
        self._posterior: Posterior | None = None

    # What is told.

    def cannot(self, position: int) -> None:
        """A revision does not build, or does not run."""
        self.failed.add(position)
        self.samples.pop(position, None)
        self._posterior = None

    def measured(self, position: int, value: float) -> None:
        if not math.isfinite(value):
            raise ValueError(f"no number was measured: {value}")
        self.samples.setdefault(position, []).append(value)
        self.sequence.append((position, value))
        self.built.add(position)
        self._posterior = None

    def pairs(self, before: int, after: int) -> list[tuple[float, float]]:
        """Of two revisions, what was measured of one directly after the other."""
        found = []
        last: tuple[int, float] | None = None
        for position, value in self.sequence:
            if last is not None and {last[0], position} == {before, after}:
                found.append((last[1], value) if position == after else (value, last[1]))
                last = None
            else:
                last = position, value
        return found

    # What is known.

    @property
    def builds(self) -> list[Build]:
        inside = [
            Build(position, tuple(samples))
            for position, samples in self.samples.items()
            if self.low <= position <= self.high
        ]
        return [*inside, *self.known]

    @property
    def posterior(self) -> Posterior:
        """Of the positions from `low` to `high`; others have none."""
        if self._posterior is None:
            weights = np.zeros(len(self.weights))
            inside = slice(self.low + 1, self.high + 1)
            weights[inside] = np.asarray(self.weights[inside], dtype=float)
            # What is before the range's first revision is as old as that.
            builds = [
                Build(min(max(one.position, self.low), self.high), one.samples)
                for one in self.builds
            ]
            self._posterior = Posterior(weights.tolist(), builds, self.limits.least)
        return self._posterior

    @property
    def runs(self) -> int:
        """Runs of this search: what was known before is no expense."""
        return sum(map(len, self.samples.values())) - self.known_runs

    # What to do.

    def next(self) -> Wish | Verdict:
        """What is wanted next, or what was found."""
        if not any(self.weights[self.low + 1 : self.high + 1]):
            return Verdict(Outcome.NOTHING, "all are built from the same files", probability=1.0)
        tried = len([p for p in self.failed if self.weights[p] > 0])
        if tried >= HOPELESS_AFTER and not self.samples and not self.known:
            why = f"{tried} revisions were tried from both ends on, and none can be measured"
            return Verdict(Outcome.UNTESTABLE, why)
        ends = self._ends()
        if isinstance(ends, Wish | Verdict):
            return ends
        if self._third_level():
            return self.next()
        found = self.posterior
        if found.nothing >= self.limits.confidence:
            return Verdict(
                Outcome.NOTHING,
                probability=found.nothing,
                step=found.step,
                others=self.others,
            )
        group, mass = self._likeliest()
        sure = mass >= self.limits.confidence
        if sure and (said := self._confirm(group, mass)) is not None:
            return said
        if self.runs >= self.limits.runs:
            why = f"after {self.runs} runs the likeliest has {100 * mass:.0f} %"
            return Verdict(Outcome.UNDECIDED, why, group, mass, found.step, others=self.others)
        wish = self._most_telling()
        if wish is None:
            why = "more runs of what can be built would not tell"
            return Verdict(Outcome.UNDECIDED, why, group, mass, found.step, others=self.others)
        return wish

    def _ends(self) -> Wish | Verdict | tuple[int, int]:
        """The oldest and the newest that can be measured, with two batches of runs each."""
        able = self._able()
        older = [one for one in self.known if one.position <= self.low]
        newer = [one for one in self.known if one.position >= self.high]
        if not able or (len(able) < 2 and not (older or newer)):
            several = self.high - self.low + 1
            bad = len([p for p in self.failed if self._inside(p)])
            why = f"0 of {several} revisions can be measured"
            if bad < several:
                why = (
                    f"{bad} of {several} revisions cannot be measured, and one alone tells nothing"
                )
            return Verdict(Outcome.UNTESTABLE, why)
        first, last = self._near_end(able, 1), self._near_end(able, -1)
        wanted = [] if older else [first]
        wanted += [] if newer else [last]
        lacking = [p for p in wanted if len(self.samples.get(p, ())) < 2 * BATCH]
        if lacking:
            done = min(len(self.samples.get(p, ())) for p in lacking)
            return Wish(tuple(dict.fromkeys(lacking)), min(BATCH, 2 * BATCH - done))
        return first, last

    def _able(self) -> list[int]:
        """Positions that can be measured, as far as is known: of neighbours that are built from
        the same, the first."""
        return [
            p
            for p in range(self.low, self.high + 1)
            if p not in self.failed and (p == self.low or self.weights[p] > 0)
        ]

    def _near_end(self, able: list[int], way: int) -> int:
        """The outermost that can be built; after failures in a row, in longer and longer strides:
        what fails for one reason fails in a span."""
        in_order = able if way == 1 else able[::-1]
        end, whole = (self.low if way == 1 else self.high), self.high - self.low
        tested = sorted((abs(p - end), p) for p in [*self.samples, *self.failed] if self._inside(p))
        reach, failures = 0, 0
        measured = None
        for far, position in tested:
            if position in self.samples:
                measured = far, position
                break
            reach, failures = far + 1, failures + 1
        if measured is not None and measured[1] == in_order[0]:
            return measured[1]
        if failures < STRIDES_AFTER:
            return in_order[0]
        # What is at the other end is no end of this one, unless nothing lies between.
        if measured is not None and 2 * measured[0] <= whole:
            return measured[1]
        beyond = measured[0] if measured is not None else whole + 1
        between = [p for p in in_order if reach <= abs(p - end) < beyond]
        if not between:
            return in_order[0] if measured is None else measured[1]
        stride = [p for p in between if 2 * reach <= abs(p - end) <= whole // 2]
        return stride[0] if stride else between[len(between) // 2]

    def _inside(self, position: int) -> bool:
        return self.low <= position <= self.high

    def _likeliest(self) -> tuple[tuple[int, ...], float]:
        """The positions that cannot be told apart, as what lies between could not be built, that
        are likeliest; and how likely."""
        best: tuple[tuple[int, ...], float] = ((), 0.0)
        group: list[int] = []
        for position in range(self.low + 1, self.high + 1):
            group.append(position)
            if position in self.failed and position < self.high:
                continue
            mass = float(self.posterior.mass[group].sum())
            if mass > best[1]:
                likely = tuple(p for p in group if self.weights[p] > 0)
                best = likely, mass
            group = []
        return best

    def _confirm(self, group: tuple[int, ...], mass: float) -> Wish | Verdict | None:
        """The revision named and the nearest before it, measured in turn."""
        after = next((p for p in range(group[-1], self.high + 1) if p in self.samples), None)
        before = next((p for p in range(group[0] - 1, self.low - 1, -1) if p in self.samples), None)
        if after is None or before is None:
            # Known of a wider range, which has been looked at.
            return self._found(group, mass, before)
        pairs = self.pairs(before, after)
        if len(pairs) < self.limits.confirming:
            return Wish((before, after), self.limits.confirming - len(pairs), confirms=True)
        away = np.array([new - old for old, new in pairs])
        middle = float(np.median(away))
        # Of the mean of the middle half, which outliers do not move; twice it, for 95 %.
        kept = np.sort(away)[len(away) // 5 : len(away) - len(away) // 5]
        error = 2 * float(kept.std(ddof=1)) * 1.4 / math.sqrt(len(kept))
        expected = self.posterior.step.size
        if middle * expected > 0 and abs(middle) - error > 0 and abs(middle) > abs(expected) / 3:
            return self._found(group, mass, before)
        if len(pairs) < 3 * self.limits.confirming:
            return Wish((before, after), self.limits.confirming, confirms=True)
        why = "not confirmed: measured in turn, the two beside the change do not differ so"
        step = self.posterior.step
        return Verdict(Outcome.UNDECIDED, why, group, mass, step, before, self.others)

    def _found(self, group: tuple[int, ...], mass: float, before: int | None) -> Verdict:
        step = self.posterior.step
        return Verdict(Outcome.FOUND, "", group, mass, step, before, self.others)

    def _third_level(self) -> bool:
        """With more than one change: a build has a level that is neither the first nor the last.
        Goes on with the part in which the larger step is. Whether that was so."""
        inside = sorted(p for p in self.samples if self.low <= p <= self.high)
        if len(inside) < 3:
            return False
        posterior = self.posterior
        middles = [float(np.median(self.samples[p])) for p in inside]
        errors = [posterior.noise / math.sqrt(len(self.samples[p])) * 1.25 for p in inside]
        first, last = middles[0], middles[-1]
        for place in range(1, len(inside) - 1):
            away = min(abs(middles[place] - first), abs(middles[place] - last))
            enough = len(self.samples[inside[place]]) >= 2 * BATCH
            if away > THIRD_LEVEL * (errors[place] + self.limits.least / 2) and enough:
                break
        else:
            return False
        steps = [abs(b - a) for a, b in itertools.pairwise(middles)]
        at = int(np.argmax(steps))
        if (at, at + 1) == (0, len(inside) - 1):
            return False
        self.low, self.high = inside[at], inside[at + 1]
        self.others = True
        self.known = []
        self._posterior = None
        return True

    def _most_telling(self) -> Wish | None:
        """The batch of runs that tells most for its cost."""
        posterior = self.posterior
        sides = posterior.on_new_side()
        step = posterior.step
        if not math.isfinite(step.size) or abs(step.size) < self.limits.least / 2:
            size = self.limits.least
        else:
            size = abs(step.size)
        inside = self._able()
        built = [p for p in inside if p in self.samples]
        gain = self._gains(np.array(inside), sides, size)
        cost = np.array([1.0 if p in self.built else 1.0 + self.build_cost for p in inside])
        worth = gain / cost
        # As long as it may be that there is none, the ends tell it.
        best = int(np.argmax(worth))
        weak = self._weaker_side(built, sides)
        if posterior.nothing > 0.5 * posterior.mass.sum() or worth[best] <= 0:
            candidates = [p for p in (built[0], built[-1]) if len(self.samples[p]) < MOST_RUNS]
            if candidates:
                return Wish(tuple(dict.fromkeys(candidates)), BATCH)
            if worth[best] <= 0:
                return None
        chosen = [inside[best]]
        if weak is not None and weak not in chosen:
            chosen.append(weak)
        return Wish(tuple(chosen), BATCH)

    def _weaker_side(self, built: list[int], sides: Floats) -> int | None:
        """Of the side with few runs for the other's, what is built and has the fewest."""
        old = [p for p in built if sides[p] < 0.05]
        new = [p for p in built if sides[p] > 0.95]
        runs = [sum(len(self.samples[p]) for p in several) for several in (old, new)]
        for mine, other, several in ((runs[0], runs[1], old), (runs[1], runs[0], new)):
            if several and mine < LEAST_SHARE * other:
                fewest = min(several, key=lambda p: len(self.samples[p]))
                return fewest if len(self.samples[fewest]) < MOST_RUNS else None
        return None

    def _gains(self, inside: NDArray[np.int_], sides: Floats, size: float) -> Floats:
        """Bits that a batch of runs of each position tells of the side that it is on, if a build is
        as likely to succeed as it seems."""
        runs = np.array([len(self.samples.get(int(p), ())) for p in inside], dtype=float)
        spread = (self.limits.least / 10) ** 2
        noise = self.posterior.noise**2
        now = np.where(runs > 0, size**2 / (spread + noise / np.maximum(runs, 1)), 0.0)
        then = size**2 / (spread + noise / (runs + BATCH))
        bits = channel(sides[inside], np.sqrt(np.maximum(then - now, 0)))
        bits[runs >= MOST_RUNS] = 0.0
        fails = np.full(len(inside), FAILS)
        if self.failed:
            broken = np.array(sorted(self.failed))
            away = np.abs(inside[:, None] - broken[None, :]).min(axis=1)
            fails += FAILS_NEAR * np.exp(-(away - 1) / NEAR)
        fails[[int(p) in self.built for p in inside]] = 0.0
        return np.asarray(bits * (1 - fails))


# Where a normal distribution is looked at, and what of it is there.
_POINTS, _SHARES = np.polynomial.hermite_e.hermegauss(21)
_SHARES = _SHARES / _SHARES.sum()


def channel(probability: Floats, distance: Floats) -> Floats:
    """Bits that a normal sample tells of which of two means it has; the second is that of
    `probability`, and so many standard deviations away. Shapes: `(n,)`."""
    p = np.clip(probability, 1e-12, 1 - 1e-12)[:, None]
    far = distance[:, None]
    total = np.zeros(len(p))
    for is_new, weight in ((False, 1 - p[:, 0]), (True, p[:, 0])):
        sample = _POINTS[None, :] + (far if is_new else 0.0)
        # The logarithm of how much likelier the second is.
        odds = far * sample - far**2 / 2
        own = odds if is_new else np.zeros_like(odds)
        mixed = np.logaddexp(np.log(1 - p), np.log(p) + odds)
        total += weight * ((own - mixed) * _SHARES[None, :]).sum(axis=1)
    return np.maximum(total, 0.0) / math.log(2)
