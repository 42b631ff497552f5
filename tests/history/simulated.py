"""A bench without builds and clocks: samples are drawn from a seed."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from deconvoy.history.builds import Source
from deconvoy.history.repository import Repository, Revision
from deconvoy.history.verdict import Limits
from deconvoy.history.walk import Chain, Search, chain_of
from generator import Commit

LEAST = math.log(1.05)


@dataclass
class Simulated:
    """Builds and runs that are made up: `level` of a revision, times noise; `is_broken` says what
    does not build. Counts what was asked for."""

    level: Callable[[Source], float]
    is_broken: Callable[[Source], bool]
    noise: float
    seed: int
    builds: dict[str, bool] = field(default_factory=dict)
    runs: int = 0
    told: dict[str, list[tuple[float, float]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._chosen = random.Random(self.seed)

    def ensure(self, source: Source) -> bool:
        return self.builds.setdefault(source.key, not self.is_broken(source))

    def cannot(self, source: Source) -> bool:
        return self.builds.get(source.key) is False

    def is_built(self, source: Source) -> bool:
        return self.builds.get(source.key) is True

    def known(self, source: Source) -> Sequence[tuple[float, float]]:
        return self.told.get(source.key, [])

    def build_cost(self) -> float | None:
        return None

    def measure(self, source: Source) -> float | None:
        self.runs += 1
        value = self.level(source) * (1 + self._chosen.gauss(0, self.noise))
        self.told.setdefault(source.key, []).append((self.runs, value))
        return value


@dataclass
class World:
    """A repository of generated commits."""

    commits: list[Commit]
    repository: Repository
    chain: Chain

    def __post_init__(self) -> None:
        self.before: dict[int, frozenset[int]] = {}
        for one in self.commits:
            inherited = (self.before[parent] for parent in one.parents)
            self.before[one.mark] = frozenset({one.mark}).union(*inherited)
        self.source = {one.mark: one.source for one in self.commits}

    def keys(self, revisions: Sequence[Revision]) -> list[str]:
        return self.repository.inputs(revisions, ["src"])

    def on_merged_branches(self) -> list[int]:
        """Those that changed the source, on branches that were merged."""
        head = self.before[self.commits[-1].mark]
        return [
            one.mark
            for one in self.commits
            if not one.is_trunk and one.source == one.mark and one.mark in head
        ]

    def search(
        self, seed: int, culprit: int | None, step: float, noise: float, broken: float
    ) -> tuple[Search, Simulated]:
        """A search in which a revision has changed the level, or none; a share is broken."""
        chosen = random.Random(seed)
        bad = {one.mark for one in self.commits if chosen.random() < broken}

        def level(source: Source) -> float:
            is_after = culprit is not None and culprit in self.before[mark_of(source)]
            return 1 + step if is_after else 1.0

        def is_broken(source: Source) -> bool:
            return self.source[mark_of(source)] in bad

        bench = Simulated(level, is_broken, noise, seed)
        return Search(bench, self.repository, self.keys, Limits(least=LEAST)), bench


def mark_of(source: Source) -> int:
    return int(source.revision.subject.split()[1])


def world(commits: list[Commit], repository: Repository, oldest: str, newest: str) -> World:
    """The chain goes from one commit to the other."""
    ends = repository.revision(oldest), repository.revision(newest)
    made = World(commits, repository, Chain([], []))
    made.chain = chain_of(repository.chain(*ends), made.keys, repository)
    return made
