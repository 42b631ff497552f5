"""Builds and measures on the machines of a Dask cluster, each of which measures alone.

A round is made on one machine, whole. Every machine measures the oldest revision that can be built,
too, so that what it measures can be told as another would have measured it (`comparable`).
Machines need what builds need, and nothing of the repository: its files are sent.
"""

from __future__ import annotations

import io
import tarfile
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deconvoy.bench.cluster import Cluster, Machine
from deconvoy.errors import UserError
from deconvoy.history.builds import Source
from deconvoy.history.finder import Finder
from deconvoy.history.laboratory import BELIEVED_AFTER
from deconvoy.history.repository import Revision
from deconvoy.history.session import Session
from deconvoy.history.verdict import BATCH, Wish
from deconvoy.history.walk import Busy, Chain, Search
from deconvoy.history.worker import Sent, Task, Wanted, carry_out

# How often it is looked whether a machine is still there, in seconds.
LOOK_S = 1.0

# What a machine is asked for: revisions, and how often it shall measure each.
Share = tuple[Machine, Sequence[Source], int]


@dataclass
class Machines:
    """The machines of a cluster, for a session: what they tell goes to its store."""

    cluster: Cluster
    session: Session
    candidates: Sequence[Source] = ()
    numbers: dict[str, int] = field(default_factory=dict)
    compared: dict[str, str] = field(default_factory=dict)
    turn: int = 0

    def __post_init__(self) -> None:
        self.sent = Sent.of(self.session.project)
        for one in self.cluster.machines.values():
            self.numbers[one.name] = self.session.store.machine(one.told.about)
        self._learn()

    def _learn(self) -> None:
        """All is told as that of the machines would have measured it which has measured most."""
        several = {self.numbers[name] for name in self.cluster.machines}
        self.session.laboratory.learn(set(self.numbers.values()), several)

    @property
    def baseline(self) -> Source | None:
        """The oldest that can be built, as far as is known: all machines measure it."""
        failures = self.session.laboratory.failures
        return next((one for one in self.candidates if one.key not in failures), None)

    @property
    def all(self) -> list[Machine]:
        return list(self.cluster.machines.values())

    def carry_out(self, work: Sequence[Share]) -> set[str]:
        """All at once, each on its machine; the names of those that were too busy.

        Raises UserError when the last machine is gone, or none can measure anything for a reason
        that the user can mend.
        """
        begun = [(share, self._submit(share)) for share in work]
        self.turn += 1
        busy = set()
        for share, future in begun:
            said = self._wait(share[0], future)
            while said is not None and "lacks" in said:
                said = self._wait(share[0], self._submit(share, said["lacks"]))
            if said is not None and self._take(share[0], said):
                busy.add(share[0].name)
        if not self.cluster.machines:
            raise UserError("the cluster has no machine left: run it again to go on when it has")
        self.session.laboratory.blame_the_project(BELIEVED_AFTER)
        return busy

    def _submit(self, share: Share, lacks: Sequence[str] = ()) -> Any:
        """With the baseline, if the machine has not measured it yet. `lacks`: what of the files it
        has said that it has not."""
        one, sources, rounds = share
        wanted = {source.key: (source, rounds) for source in sources}
        base = self.baseline
        if base is not None and self.compared.get(one.name) != base.key:
            wanted = {base.key: (base, max(rounds, BATCH))} | {
                key: told for key, told in wanted.items() if key != base.key
            }
        laboratory = self.session.laboratory
        told = self.session.store.built_keys(laboratory.builder.recipe)
        task = Task(
            tuple(
                Wanted(source, count, len(laboratory.rounds.get(key, ())), key in told)
                for key, (source, count) in wanted.items()
            ),
            {
                source.revision.id: self._tree(source.revision)
                for source, _ in wanted.values()
                if source.revision.id in lacks
            },
            self.turn,
        )
        return self.cluster.client.submit(
            carry_out, self.sent, task, workers=[one.worker], allow_other_workers=False, pure=False
        )

    def _tree(self, revision: Revision) -> bytes:
        file = io.BytesIO()
        with tempfile.TemporaryDirectory() as own:
            self.session.repository.export(revision, Path(own))
            with tarfile.open(fileobj=file, mode="w") as archive:
                archive.add(own, arcname=".")
        return file.getvalue()

    def _wait(self, one: Machine, future: Any) -> Any:
        """What a machine tells; nothing if it is gone."""
        import distributed

        ended = threading.Event()
        future.add_done_callback(lambda _: ended.set())
        while not ended.wait(LOOK_S):
            if one.worker not in self.cluster.workers():
                future.cancel()
                self.cluster.machines.pop(one.name, None)
                return None
        try:
            return future.result()
        except (distributed.KilledWorker, CancelledError):
            self.cluster.machines.pop(one.name, None)
            return None

    def _take(self, one: Machine, said: dict[str, Any]) -> bool:
        """Into the store, and to what is known; whether the machine was too busy."""
        store, laboratory = self.session.store, self.session.laboratory
        for table in ("builds", "runs"):
            for row in said[table]:
                store.add(table, row, self.numbers[one.name])
        base = self.baseline
        if base is not None and any(
            row["key"] == base.key and row["counts"] for row in said["runs"]
        ):
            self.compared[one.name] = base.key
        laboratory.builder.made += said["made"]
        laboratory.dropped += said["dropped"]
        self._learn()
        return bool(said["busy"])


def sweep_on(
    cluster: Cluster,
    session: Session,
    sources: Sequence[Source],
    progress: Callable[[str, int, int], None],
) -> int:
    """As `sweep.sweep`, each build on one machine; builds are given out one after the other to
    whoever is free. Rounds that are missing."""
    several = Machines(cluster, session, sources)
    laboratory, repeats = session.laboratory, session.project.benchmark.repeats

    def left() -> list[Source]:
        return [
            one
            for one in sources
            if one.key not in laboratory.failures
            and len(laboratory.rounds.get(one.key, ())) < repeats
        ]

    tried: Counter[str] = Counter()
    while waiting := [one for one in left() if tried[one.key] < 2]:
        work = list(shares(several.all, waiting))
        tried.update(source.key for _, some in work for source in some)
        # What was measured is in the store after each round.
        for _ in range(repeats):
            missing = {one.key for one in left()}
            now = [(one, [each for each in some if each.key in missing], 1) for one, some in work]
            several.carry_out([share for share in now if share[1] and share[0] in several.all])
            progress("revisions", len(sources) - len(left()), len(sources))
    return sum(repeats - len(laboratory.rounds.get(one.key, ())) for one in left())


def shares(
    several: Sequence[Machine], waiting: Sequence[Source]
) -> Iterator[tuple[Machine, list[Source]]]:
    """The next few for each machine: measured in turn there."""
    some = 4
    for number, one in enumerate(several):
        mine = list(waiting[number :: len(several)][:some])
        if mine:
            yield one, mine


@dataclass
class ClusterSearch(Search):
    """A search that asks all machines at a time: what the finder wants is measured on one that was
    quiet last, and the rest measure what else tells much."""

    several: Machines | None = None
    busy: set[str] = field(default_factory=set)

    def _grant(self, chain: Chain, finder: Finder, wish: Wish) -> None:
        assert self.several is not None
        if not self.several.candidates:
            self.several.candidates = chain.sources
        laboratory = self.several.session.laboratory
        self._what_failed(chain, finder)
        if any(position in finder.failed for position in wish.positions):
            return
        free = sorted(self.several.all, key=lambda one: one.name in self.busy)
        wanted = [chain.sources[position] for position in wish.positions]
        work = [(free[0], wanted, wish.rounds)]
        others = [] if wish.confirms else self.also(chain, finder, len(free) - 1, wish.positions)
        for one, position in zip(free[1:], others, strict=False):
            work.append((one, [chain.sources[position]], BATCH))
        before = {one.name for rounds in laboratory.rounds.values() for one in rounds}
        busy = self.several.carry_out(work)
        self._what_failed(chain, finder)
        asked = dict.fromkeys([*wish.positions, *others])
        new = [
            (told.at_unix_s, position, laboratory.project.metric.value(told.values))
            for position in asked
            for told in laboratory.rounds.get(chain.sources[position].key, [])
            if told.name not in before
        ]
        for _, position, value in sorted(new):
            if position not in finder.failed:
                finder.measured(position, self.sample(value))
        self._mind(free[0], busy)
        known = {position for _, position, _ in new} | finder.failed
        if free[0] in self.several.all and not busy and not known & set(wish.positions):
            raise UserError(
                f"{free[0].name} has measured {wanted[0].revision.short}, and nothing of it can be "
                f"compared: is its deconvoy another one?"
            )

    def _what_failed(self, chain: Chain, finder: Finder) -> None:
        """What can be measured nowhere, also if others than the finder have asked for it."""
        for position, source in enumerate(chain.sources):
            if self.bench.cannot(source):
                finder.cannot(position)

    def _mind(self, asked: Machine, busy: set[str]) -> None:
        """Of the machines, which were too busy. Raises Busy when all were, one after the other."""
        assert self.several is not None
        self.busy -= {asked.name} - busy
        self.busy |= busy & {asked.name}
        if self.busy >= {one.name for one in self.several.all}:
            self.busy.clear()
            raise Busy


@contextmanager
def search_on(
    address: str, session: Session, say: Callable[[str], None], confidence: float | None
) -> Iterator[Search]:
    """A search on the machines at an address, as long as it is open."""
    with Cluster(address) as cluster:
        plain = session.search(say, confidence)
        yield ClusterSearch(
            plain.bench,
            plain.repository,
            plain.keys,
            plain.limits,
            say=say,
            several=Machines(cluster, session),
        )
