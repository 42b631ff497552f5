"""The search for a better policy: many candidates in the simulator, and those that none beats.

A candidate is judged on every workload and every number of cores by four figures, of which none
may be had at the cost of the others: how long I/O-bound threads wait for the lock, what is left to
those that compute, how evenly they share it, and the longest wait of anybody. The search begins
with points spread evenly over all parameters (Sobol's sequence, 1967) and goes on beside the best
ones found, as an evolution strategy does, with Deb's non-dominated sorting and crowding (NSGA-II,
2002).
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from scipy.stats import qmc

from deconvoy import mixes
from deconvoy._native import simulate
from deconvoy.bench.mixed import CPU, IO, kept
from deconvoy.crashes import noted

# A wait shorter than this is one hand-off: no policy is the better for less.
HAND_OFF_NS = 5_000


@dataclass(frozen=True)
class Parameter:
    """A parameter of `adaptive`, from `low` to `high` nanoseconds; `off`: or 0, its rule off."""

    name: str
    low: float
    high: float
    off: bool = False

    def at(self, place: float) -> int:
        """The value at a place from 0 to 1; the first tenth is off, where that is possible."""
        if self.off:
            if place < 0.1:
                return 0
            place = (place - 0.1) / 0.9
        exact = self.low * (self.high / self.low) ** min(max(place, 0.0), 1.0)
        digits = 1 - math.floor(math.log10(exact))
        return int(round(exact, digits) + 0.5)


SPACE = (
    # Not shorter than CPython's own by much: what a switch costs in caches is not simulated.
    Parameter("slice", 4e6, 20e6),
    Parameter("credit", 1e6, 20e6),
    Parameter("wakeup", 50e3, 2e6),
    Parameter("grace", 2e3, 200e3, off=True),
    Parameter("handover", 1e3, 50e3, off=True),
    # Programs rely on it: a worker hands over a result a moment before it says that it is idle.
    Parameter("guard", 50e3, 400e3),
    Parameter("linger", 5e3, 400e3, off=True),
)


def policy_at(point: Sequence[float]) -> str | None:
    """The policy at a point of the unit cube; None: its parameters do not go together."""
    values = {one.name: one.at(place) for one, place in zip(SPACE, point, strict=True)}
    if values["wakeup"] > values["credit"] or values["handover"] > values["grace"]:
        return None
    return "adaptive:" + ",".join(f"{name}={value}ns" for name, value in values.items())


def rivals() -> list[str]:
    """The other policies, each with the settings that its users have."""
    found = ["adaptive", "priority:io=1,io-*=1,other=1"]
    for interval in ("10ms", "5ms", "1ms", "500us", "100us", "50us"):
        found += [f"timeout:{interval}", f"timer:{interval}", f"mutex:{interval}"]
    found += [f"{name}:{count}" for name in ("fifo", "ticks") for count in (100, 1000, 10_000)]
    return found


@dataclass(frozen=True)
class Figures:
    """What a policy comes to. Times in nanoseconds; less is better of `wait` and `longest`."""

    # Geometric mean, over workloads and cores, of the 99th percentile of I/O-bound threads' waits.
    wait_p99_ns: float
    # Mean share of the time that I/O left in which computing threads had the lock; without such, of
    # all time in which anybody had it.
    kept: float
    # The least even of all.
    jain: float
    longest_wait_ns: float
    # Mean of the cores that the threads used while they did not have the lock: what it costs others
    # that some stay awake. Not searched for, and bounded for the winner.
    beside: float = 0.0

    def costs(self) -> tuple[float, float, float, float]:
        """The four, each so that less is better, and in steps that matter: a fortieth of a wait, a
        thousandth of what is kept."""
        wait = round(40 * math.log(max(self.wait_p99_ns, 1.0)))
        longest = round(40 * math.log(max(self.longest_wait_ns, 1.0)))
        return wait, round(1000 * (1 - self.kept)), round(500 * (1 - self.jain)), longest


@dataclass
class Candidate:
    policy: str
    figures: Figures
    point: tuple[float, ...] | None = None
    by_case: list[dict[str, Any]] = field(default_factory=list)

    def as_data(self) -> dict[str, Any]:
        return {"policy": self.policy, **asdict(self.figures), "cases": self.by_case}


def dominates(one: Figures, other: Figures) -> bool:
    """Whether `one` is nowhere worse and somewhere better."""
    pairs = list(zip(one.costs(), other.costs(), strict=True))
    return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)


def front(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Those that none dominates, one of each kind of figures."""
    seen: dict[tuple[float, ...], Candidate] = {}
    for one in candidates:
        if not any(dominates(other.figures, one.figures) for other in candidates):
            seen.setdefault(one.figures.costs(), one)
    return sorted(seen.values(), key=lambda one: one.figures.wait_p99_ns)


def crowding(candidates: Sequence[Candidate]) -> list[float]:
    """How far each of a front is from its neighbours: those at the ends are infinitely far."""
    far = [0.0] * len(candidates)
    for goal in range(4):
        order = sorted(range(len(candidates)), key=lambda at: candidates[at].figures.costs()[goal])
        values = [candidates[at].figures.costs()[goal] for at in order]
        far[order[0]] = far[order[-1]] = math.inf
        span = values[-1] - values[0] or 1.0
        for place in range(1, len(order) - 1):
            far[order[place]] += (values[place + 1] - values[place - 1]) / span
    return far


@dataclass(frozen=True)
class Case:
    """A workload on so many cores."""

    mix: str
    text: str
    cores: int


def cases(names: Sequence[str], cores: Sequence[int]) -> list[Case]:
    return [Case(name, mixes.load(name), count) for name in names for count in cores]


def judge(policy: str, on: Sequence[Case], costs: str, seed: int) -> Candidate:
    """Simulates a policy on every case."""
    waits, shares, jain, longest, beside, each = [], [], [], 0, [], []
    for case in on:
        again = f"--policy {policy} --mix {case.mix} --cores {case.cores} --seed {seed}"
        # If a rule of the simulator's is broken.
        with noted(f"to repeat it: deconvoy policies search {again}"):
            outcome = json.loads(simulate(policy, case.cores, case.text, costs, seed))
        elapsed = outcome["elapsed_ns"]
        cpu = [one for one in outcome["groups"] if one["name"] == CPU]
        rest = [one for one in outcome["groups"] if one["name"] != CPU]
        used = sum(one["held_ns"] for one in rest)
        held = sum(one["held_ns"] for one in cpu) if cpu else None
        share = kept(held, used, elapsed)
        shares.append(share)
        jain += [one["jain"] for one in cpu]
        longest = max(longest, *(one["longest_wait_ns"] for one in outcome["groups"]))
        ran = sum(max(one["ran_ns"] - one["held_ns"], 0) for one in outcome["groups"])
        beside.append(ran / elapsed)
        io = [one for one in rest if one["name"] == IO]
        # One that never got the lock has waited to the end.
        p99 = [
            max(one["waits"]["p99_ns"], HAND_OFF_NS) if one["acquired"] else elapsed for one in io
        ]
        waits += p99
        each.append(
            {
                "mix": case.mix,
                "cores": case.cores,
                "kept": share,
                "wait_p99_ns": max(p99, default=0),
            }
        )
    mean_wait = math.exp(sum(map(math.log, waits)) / len(waits)) if waits else 0.0
    mean_beside = sum(beside) / len(beside)
    figures = Figures(
        mean_wait, sum(shares) / len(shares), min(jain, default=1.0), longest, mean_beside
    )
    return Candidate(policy, figures, by_case=each)


@dataclass
class Search:
    """A search: what it is judged on, and how long it goes on."""

    on: list[Case]
    costs: str
    seed: int
    population: int
    generations: int
    workers: int
    evaluated: list[Candidate] = field(default_factory=list)

    @property
    def total(self) -> int:
        """How many candidates `run` judges."""
        return len(rivals()) + self.population * (self.generations + 1)

    def run(self, told: Callable[[Candidate], object]) -> list[Candidate]:
        """The front. `told` is called with each candidate when it is judged."""
        random_one = random.Random(self.seed)
        sobol = qmc.Sobol(len(SPACE), seed=np.random.default_rng(self.seed))
        with ThreadPoolExecutor(self.workers) as pool:
            self._judge(pool, [(policy, None) for policy in rivals()], told)
            points = self._first(sobol)
            self._judge(pool, points, told)
            for _ in range(self.generations):
                parents = self._parents()
                self._judge(pool, list(self._children(parents, random_one)), told)
        return front(self.evaluated)

    def judge_each(
        self, policies: Sequence[str], told: Callable[[Candidate], object]
    ) -> list[Candidate]:
        """Judges these, and searches for nothing. `told` is called as in `run`."""
        with ThreadPoolExecutor(self.workers) as pool:
            self._judge(pool, [(policy, None) for policy in policies], told)
        return self.evaluated

    def _first(self, sobol: qmc.Sobol) -> list[tuple[str, tuple[float, ...] | None]]:
        found: list[tuple[str, tuple[float, ...] | None]] = []
        while len(found) < self.population:
            for row in sobol.random(64):
                point = tuple(float(place) for place in row)
                policy = policy_at(point)
                if policy is not None and len(found) < self.population:
                    found.append((policy, point))
        return found

    def _parents(self) -> list[Candidate]:
        """The best of those that have a point, from the least crowded places of the front."""
        left = [one for one in self.evaluated if one.point is not None]
        chosen: list[Candidate] = []
        while left and len(chosen) < max(self.population // 4, 2):
            best = front(left)
            far = crowding(best)
            order = sorted(range(len(best)), key=lambda at: -far[at])
            chosen += [best[at] for at in order]
            left = [one for one in left if one not in best]
        return chosen[: max(self.population // 4, 2)]

    def _children(
        self, parents: Sequence[Candidate], chance: random.Random
    ) -> Iterator[tuple[str, tuple[float, ...] | None]]:
        made = 0
        known = {one.policy for one in self.evaluated}
        for _ in range(100 * self.population):
            one, other = chance.choice(parents).point, chance.choice(parents).point
            assert one is not None and other is not None
            mixed = [a if chance.random() < 0.7 else b for a, b in zip(one, other, strict=True)]
            moved = [
                min(max(place + chance.gauss(0, 0.08), 0.0), 1.0)
                if chance.random() < 0.5
                else place
                for place in mixed
            ]
            policy = policy_at(moved)
            if policy is None or policy in known:
                continue
            known.add(policy)
            yield policy, tuple(moved)
            made += 1
            if made == self.population:
                return

    def _judge(
        self,
        pool: ThreadPoolExecutor,
        points: Sequence[tuple[str, tuple[float, ...] | None]],
        told: Callable[[Candidate], object],
    ) -> None:
        def one(pair: tuple[str, tuple[float, ...] | None]) -> Candidate:
            found = judge(pair[0], self.on, self.costs, self.seed)
            found.point = pair[1]
            return found

        for found in pool.map(one, points):
            self.evaluated.append(found)
            told(found)


# How much worse than the present default the winner may be in anything: the waits of I/O-bound
# threads, times; what is kept, as a share; evenness, by Jain's index; the longest wait, times.
WAIT_WITHIN = 1.1
KEPT_WITHIN = 0.002
JAIN_WITHIN = 0.002
LONGEST_WITHIN = 1.1
# The cores that it may use beside the lock, more than the default.
BESIDE_WITHIN = 0.1


def winner(found: Sequence[Candidate], default: Candidate) -> Candidate:
    """The one of ours that does most for both sides, among those that are nowhere much worse than
    the default, and beaten by none: the product of what I/O-bound threads wait and of what is lost
    to those that compute is least."""
    least = default.figures

    def is_no_worse(one: Figures) -> bool:
        return (
            one.wait_p99_ns <= WAIT_WITHIN * least.wait_p99_ns
            and one.kept >= least.kept - KEPT_WITHIN
            and one.jain >= min(least.jain, 0.999) - JAIN_WITHIN
            and one.longest_wait_ns <= LONGEST_WITHIN * least.longest_wait_ns
            and one.beside <= least.beside + BESIDE_WITHIN
        )

    def product(one: Candidate) -> float:
        return max(one.figures.wait_p99_ns, 1.0) * max(1 - one.figures.kept, 0.001)

    best = front(found)
    ours = [one for one in best if one.policy.startswith("adaptive") and is_no_worse(one.figures)]
    return min([default, *ours], key=product)
