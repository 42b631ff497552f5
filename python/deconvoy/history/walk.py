"""Ranges of revisions as a finder sees them, and the search through them: first along those that
follow one another, then into a merged branch."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from deconvoy.history.builds import Source
from deconvoy.history.finder import Finder
from deconvoy.history.posterior import Build
from deconvoy.history.repository import Repository, Revision
from deconvoy.history.verdict import BATCH, Limits, Outcome, Verdict, Wish
from deconvoy.output import counted

# Values so much smaller than the first one that was measured are as good as 0.
SMALL = 1e-3

# Parts that a range has at first, where all changes are wanted.
EVENLY = 8

# Between these it is believed how much dearer a build is than a batch of runs.
COSTS = (1.0, 50.0)


class Busy(Exception):
    """The machine has not been quiet for as long as a round takes, though it was waited for."""


class Bench(Protocol):
    """What builds and measures. `Laboratory` is one; tests have others."""

    def ensure(self, source: Source) -> bool:
        """Whether a revision is built."""

    def measure(self, source: Source) -> float | None:
        """The metric of one round; None when it does not run. Raises Busy."""

    def known(self, source: Source) -> Sequence[tuple[float, float]]:
        """When, and the metric, of each round that was made before."""

    def cannot(self, source: Source) -> bool:
        """Whether it is known that it can be neither built nor run."""

    def is_built(self, source: Source) -> bool: ...

    def build_cost(self) -> float | None:
        """Of a build, in batches of runs, if it is known."""


@dataclass(frozen=True)
class Chain:
    """Revisions that follow one another, oldest first, with what each is built from, and how likely
    each is to hold a change: none if it is built from the same as the one before, a merge as likely
    as all that it brought."""

    sources: list[Source]
    weights: list[float]

    def __len__(self) -> int:
        return len(self.sources)

    @property
    def distinct(self) -> int:
        """Different builds."""
        return len({one.key for one in self.sources})


# Of revisions, what each is built from.
Keys = Callable[[Sequence[Revision]], list[str]]


def chain_of(revisions: Sequence[Revision], keys: Keys, repository: Repository) -> Chain:
    names = keys(revisions)
    sources = [Source(one, name) for one, name in zip(revisions, names, strict=True)]
    brought = repository.brought(revisions)
    weights = [0.0]
    for before, after in itertools.pairwise(sources):
        if after.key == before.key:
            weights.append(0.0)
        else:
            weights.append(float(max(1, len(brought.get(after.revision.id, ())))))
    return Chain(sources, weights)


@dataclass(frozen=True)
class Found:
    """What a search through a chain came to. `inside`: the search through the branch that the
    revision found has merged, if it has; `merge`: that one, in the search through the branch.
    `finder`: what is known of the chain."""

    chain: Chain
    verdict: Verdict
    finder: Finder
    inside: Found | None = None
    merge: Revision | None = None

    @property
    def innermost(self) -> Found:
        """The search that names the revision: that of a branch, if it has found it."""
        if self.inside is not None and self.inside.verdict.outcome is Outcome.FOUND:
            return self.inside.innermost
        return self

    @property
    def named(self) -> list[Source]:
        return [self.chain.sources[position] for position in self.verdict.positions]


@dataclass
class Search:
    """Searches chains with a bench. Of the metric the logarithm is compared, or what is nearly that
    and is there for 0 and less: `unit` is where it begins to differ."""

    bench: Bench
    repository: Repository
    keys: Keys
    limits: Limits
    unit: float | None = None
    say: Callable[[str], None] = lambda _: None
    progress: Callable[[Chain, Finder], None] = lambda _, __: None

    def sample(self, value: float) -> float:
        """As the finder has it: differences of it are those of logarithms."""
        if self.unit is None and value != 0:
            self.unit = SMALL * abs(value)
        return math.asinh(value / self.unit) if self.unit is not None else 0.0

    def value(self, sample: float) -> float:
        """What has that sample."""
        value = math.sinh(sample) * self.unit if self.unit is not None else 0.0
        return 0.0 if self.unit is not None and abs(value) < self.unit else value

    def through(
        self,
        chain: Chain,
        known: Sequence[Build] = (),
        low: int = 0,
        high: int = -1,
        entered: frozenset[str] = frozenset(),
    ) -> Found:
        """The change between two positions of a chain, and where it is in what was merged there.
        `known`: builds of which it is known on which side of the chain they are. `entered`: merges
        whose branches stand in the chain."""
        finder = self._begin(chain, known, low, high)
        verdict = self._carry_out(chain, finder)
        found = Found(chain, verdict, finder)
        if verdict.outcome is Outcome.FOUND:
            return replace(found, inside=self._descend(found, entered))
        return found

    def all(self, chain: Chain) -> list[Found]:
        """All changes, also those that another one takes back: some revisions are measured first,
        evenly spaced; a part of the range in which there is a change is divided where it is."""
        places = self._look_everywhere(chain)
        if len(places) < 2:
            return [self.through(chain)]
        found: list[Found] = []
        parts = list(itertools.pairwise(places))
        while parts:
            low, high = parts.pop()
            if high - low < 1:
                continue
            one = self.through(chain, low=low, high=high)
            found.append(one)
            if one.verdict.outcome is Outcome.FOUND:
                first, last = one.verdict.positions[0], one.verdict.positions[-1]
                parts += [(low, first - 1), (last, high)]
        changes = [one for one in found if one.verdict.outcome is Outcome.FOUND]
        changes.sort(key=lambda one: one.verdict.positions)
        # What is not known of the rest is told, too.
        known = (Outcome.FOUND, Outcome.NOTHING)
        doubts = [one for one in found if one.verdict.outcome not in known]
        return [*changes, *doubts] or [min(found, key=lambda one: one.verdict.probability)]

    def _look_everywhere(self, chain: Chain) -> list[int]:
        """Measures revisions that are evenly spaced, from the first that can be measured to the
        last; the positions of those that were."""
        finder = self._begin(chain, (), 0, len(chain) - 1)
        firsts = [p for p in range(len(chain)) if p == 0 or chain.weights[p] > 0]
        ends = [self._first_able(chain, finder, some) for some in (firsts, firsts[::-1])]
        asked = {one for one in ends if one is not None}
        count = min(EVENLY, len(firsts) - 1)
        asked |= {firsts[round(n * (len(firsts) - 1) / max(count, 1))] for n in range(count + 1)}
        while True:
            able = [p for p in sorted(asked) if p not in finder.failed]
            done = min((len(finder.samples.get(p, ())) for p in able), default=2 * BATCH)
            if done >= 2 * BATCH:
                return able
            lacking = tuple(p for p in able if len(finder.samples.get(p, ())) < 2 * BATCH)
            try:
                self._grant(chain, finder, Wish(lacking, 2 * BATCH - done))
            except Busy:
                return able

    def _first_able(self, chain: Chain, finder: Finder, positions: Sequence[int]) -> int | None:
        """The first of some positions that can be measured, and is now."""
        for position in positions:
            try:
                while position not in finder.failed and not finder.samples.get(position):
                    self._grant(chain, finder, Wish((position,), 1))
            except Busy:
                return None
            if position not in finder.failed:
                return position
        return None

    def _begin(self, chain: Chain, known: Sequence[Build], low: int, high: int) -> Finder:
        """With all that was measured of the chain before, in the order of time."""
        finder = Finder(chain.weights, self.limits, known=list(known), low=low, high=high)
        if (cost := self.bench.build_cost()) is not None:
            finder.build_cost = min(max(cost, COSTS[0]), COSTS[1])
        rounds: list[tuple[float, int, float]] = []
        last = None
        for position, source in enumerate(chain.sources):
            if self.bench.cannot(source):
                finder.cannot(position)
            elif self.bench.is_built(source):
                finder.built.add(position)
            # Of neighbours that are built from the same, the first in the range stands for all.
            if source.key != last or position == low:
                rounds += [(when, position, value) for when, value in self.bench.known(source)]
            last = source.key
        for _, position, value in sorted(rounds):
            if position not in finder.failed:
                finder.measured(position, self.sample(value))
        finder.known_runs = finder.runs
        return finder

    def _carry_out(self, chain: Chain, finder: Finder) -> Verdict:
        """What the finder wishes, until it has a verdict."""
        while True:
            self.progress(chain, finder)
            wish = finder.next()
            if isinstance(wish, Verdict):
                return wish
            if wish.confirms:
                names = " and ".join(chain.sources[p].revision.short for p in wish.positions)
                self.say(f"looks at {names} again, in turn")
            try:
                self._grant(chain, finder, wish)
            except Busy:
                why = (
                    "the machine was too busy: other programs used it, whenever it was measured; "
                    "run it again when it is quiet, or read a count, which minds no load"
                )
                return Verdict(Outcome.UNDECIDED, why, others=finder.others)

    def _grant(self, chain: Chain, finder: Finder, wish: Wish) -> None:
        for position in wish.positions:
            if not self.bench.ensure(chain.sources[position]):
                self._cannot(chain, finder, position)
                return
            finder.built.add(position)
        for number in range(wish.rounds):
            in_turn = wish.positions if number % 2 == 0 else wish.positions[::-1]
            for position in in_turn:
                value = self.bench.measure(chain.sources[position])
                if value is None:
                    self._cannot(chain, finder, position)
                    return
                finder.measured(position, self.sample(value))

    def _cannot(self, chain: Chain, finder: Finder, position: int) -> None:
        """It and all that are built from the same."""
        key = chain.sources[position].key
        for other, source in enumerate(chain.sources):
            if source.key == key:
                finder.cannot(other)

    def also(self, chain: Chain, finder: Finder, count: int, but: Sequence[int]) -> list[int]:
        """So many positions more that are worth measuring at the same time: at the quantiles of
        where the change may be."""
        if count < 1 or not finder.samples:
            return []
        sides = finder.posterior.on_new_side()
        found: list[int] = []
        for number in range(1, count + 1):
            at = int(np.searchsorted(sides, number / (count + 1)))
            free = [
                position
                for position in range(finder.low, finder.high + 1)
                if position not in finder.failed and position not in (*but, *found)
            ]
            if free:
                found.append(min(free, key=lambda position: abs(position - at)))
        return found

    def _descend(self, found: Found, entered: frozenset[str]) -> Found | None:
        """Into what was merged, if a merge is what was found, or may be. Of several, into that
        which brought most."""
        verdict, chain = found.verdict, found.chain
        group = [chain.sources[position].revision for position in verdict.positions]
        # Branches that were merged at once do not follow one another.
        merges = [one for one in group if len(one.parents) == 2 and one.id not in entered]
        branches = [(self.repository.merged(one), one) for one in merges]
        branch, merge = max(branches, key=lambda pair: len(pair[0]), default=([], group[-1]))
        if not branch or not branch[0].parents:
            return None
        base = self.repository.revision(branch[0].parents[0])
        self.say(f"{merge.short} has merged {counted(len(branch), 'revision')}: looks into them")
        entered |= {merge.id}
        places = {one.revision.id: place for place, one in enumerate(chain.sources)}
        at, finder = places.get(base.id), found.finder
        if at is None or not finder.low <= at < verdict.positions[0]:
            # What the first search knows of the level before is of another one: the branch alone.
            alone = chain_of([base, *branch], self.keys, self.repository)
            return replace(self.through(alone, entered=entered), merge=merge)
        # Of the group all but the last could not be built: any of them stays possible.
        inner = chain_of([base, *branch, *group], self.keys, self.repository)
        end = len(inner) - 1
        # What the merge brought stands in the chain itself now.
        inner = replace(inner, weights=[min(one, 1.0) for one in inner.weights])
        keys = {one.key for one in inner.sources}
        known = [
            Build(end if one.position >= verdict.positions[-1] else 0, one.samples)
            for one in finder.builds
            if finder.low <= one.position <= finder.high
            and chain.sources[one.position].key not in keys
        ]
        return replace(self.through(inner, known, entered=entered), merge=merge)


def build_cost(build_s: Sequence[float], round_s: Sequence[float]) -> float | None:
    """A build, in batches of runs. None as long as nothing is known."""
    if not build_s or not round_s:
        return None
    return float(np.median(build_s)) / max(BATCH * float(np.median(round_s)), 1e-3)
