"""Builds and measures on the machines of a Dask cluster, each of which measures alone.

A round is made on one machine, whole. Every machine measures the oldest revision that can be built,
too, so that what it measures can be told as another would have measured it (`comparable`).
Machines need what builds need, and nothing of the repository: its files are sent.
"""

from __future__ import annotations

import hashlib
import io
import re
import tarfile
import tempfile
import threading
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from deconvoy.bench import machine as machines
from deconvoy.bench.cluster import Cluster, Machine, alone
from deconvoy.errors import UserError
from deconvoy.files import cache_folder, write_whole
from deconvoy.history.builds import Builder, Export, Source
from deconvoy.history.finder import BATCH, Finder, Wish
from deconvoy.history.laboratory import Laboratory
from deconvoy.history.project import NAME, Project, files_of, parse, short_hash
from deconvoy.history.repository import Revision
from deconvoy.history.session import Session
from deconvoy.history.store import Store
from deconvoy.history.walk import Busy, Chain, Search

# Where the benchmark's own files are on another machine, and how often it is looked whether that is
# still there, in seconds.
OWN, LOOK_S = "own", 1.0


@dataclass(frozen=True)
class Sent:
    """A project as it goes to another machine: the file, and the benchmark's own."""

    text: str
    files: dict[str, tuple[int, bytes]]

    @classmethod
    def of(cls, project: Project) -> Sent:
        files = {}
        if (folder := project.benchmark.folder) is not None:
            for path in files_of(folder):
                name = str(path.relative_to(folder))
                files[name] = (path.stat().st_mode & 0o777, path.read_bytes())
        return cls(without_store(project.file.read_text()), files)

    def opened(self, cache: Path) -> Project:
        """On the other machine."""
        files = {name: hashlib.sha256(told).hexdigest() for name, (_, told) in self.files.items()}
        folder = cache / "projects" / short_hash([self.text, files])
        (folder / OWN).mkdir(parents=True, exist_ok=True)
        for name, (mode, content) in self.files.items():
            place = folder / OWN / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
            place.chmod(mode)
        file = folder / NAME
        write_whole(file, self.text)
        project = parse(tomllib.loads(self.text), file, has_folder=False)
        benchmark = replace(project.benchmark, folder=folder / OWN if self.files else None)
        return replace(project, benchmark=benchmark)


def without_store(text: str) -> str:
    """A project file without the address of a store, which may have a password."""
    return re.sub(r"^\[store\]\s*$.*?(?=^\[|\Z)", "", text, flags=re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Task:
    """Revisions that a machine builds, and measures in turn, each so many times."""

    rounds: tuple[tuple[Source, int], ...]
    trees: dict[str, bytes]


def unpacked(trees: dict[str, bytes]) -> Export:
    """Puts what was sent of a revision into a folder."""

    def export(revision: Revision, folder: Path) -> None:
        with tarfile.open(fileobj=io.BytesIO(trees[revision.id])) as archive:
            archive.extractall(folder, filter="tar")

    return export


def has(keys: list[str]) -> list[str]:
    """In a worker: which builds it has."""
    place = cache_folder() / "history" / "builds"
    return [key for key in keys if (place / key / "done.json").is_file()]


def carry_out(sent: Sent, task: Task) -> dict[str, Any]:
    """In a worker: builds and measures, while nobody else does on this machine; what its store has
    then."""
    cache = cache_folder() / "history"
    project = sent.opened(cache)
    with alone(), tempfile.TemporaryDirectory() as own:
        store = Store(str(Path(own, "store.db")))
        try:
            here = store.machine(machines.describe())
            builder = Builder(project, unpacked(task.trees), store, here, cache)
            laboratory = Laboratory(project, builder, store, here)
            busy = not measured(laboratory, task)
            return {
                "builds": store.all_of("builds"),
                "runs": store.all_of("runs"),
                "busy": busy,
                "dropped": laboratory.dropped,
            }
        finally:
            store.close()


def measured(laboratory: Laboratory, task: Task) -> bool:
    """Whether it could be measured: not if the machine was too busy."""
    able = [(source, rounds) for source, rounds in task.rounds if laboratory.ensure(source)]
    for number in range(max((rounds for _, rounds in able), default=0)):
        for source, rounds in able if number % 2 == 0 else able[::-1]:
            if source.key in laboratory.failures or number >= rounds:
                continue
            try:
                laboratory.measure(source)
            except Busy:
                return False
    return True


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

    def __post_init__(self) -> None:
        self.sent = Sent.of(self.session.project)
        for one in self.cluster.machines.values():
            self.numbers[one.name] = self.session.store.machine(one.told.about)
        # All is told as the first would have measured it.
        self.session.laboratory.machine = next(iter(self.numbers.values()))
        self._learn()

    def _learn(self) -> None:
        laboratory = self.session.laboratory
        laboratory.learn(set(self.numbers.values()), laboratory.machine)

    @property
    def baseline(self) -> Source | None:
        """The oldest that can be built, as far as is known: all machines measure it."""
        failures = self.session.laboratory.failures
        return next((one for one in self.candidates if one.key not in failures), None)

    @property
    def all(self) -> list[Machine]:
        return list(self.cluster.machines.values())

    def carry_out(self, work: Sequence[Share]) -> None:
        """All at once, each on its machine. Raises Busy when one could not be measured, UserError
        when the last machine is gone."""
        futures = [(one, self._submit(one, sources, rounds)) for one, sources, rounds in work]
        busy = False
        for one, future in futures:
            said = self._wait(one, future)
            if said is not None:
                busy |= self._take(one, said)
        if not self.cluster.machines:
            raise UserError("the cluster has no machine left: run it again to go on when it has")
        if busy:
            raise Busy

    def _submit(self, one: Machine, sources: Sequence[Source], rounds: int) -> Any:
        """With the baseline, if the machine has not measured it yet."""
        wanted = {source.key: (source, rounds) for source in sources}
        base = self.baseline
        if base is not None and self.compared.get(one.name) != base.key:
            wanted = {base.key: (base, max(rounds, BATCH))} | {
                key: told for key, told in wanted.items() if key != base.key
            }
        client = self.cluster.client
        alone_on = {"workers": [one.worker], "allow_other_workers": False, "pure": False}
        keys = list(wanted)
        there = self._wait(one, client.submit(has, keys, **alone_on)) or []
        trees = {
            source.revision.id: self._tree(source.revision)
            for source, _ in wanted.values()
            if source.key not in there and source.key not in self.session.laboratory.failures
        }
        return client.submit(carry_out, self.sent, Task(tuple(wanted.values()), trees), **alone_on)

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
        laboratory.builder.made += len(said["builds"])
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
            with suppress(Busy):
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
    """A search that asks all machines at a time: what the finder wants is measured on one, and
    the rest measure what else tells much."""

    several: Machines | None = None

    def _grant(self, chain: Chain, finder: Finder, wish: Wish) -> None:
        assert self.several is not None
        free = self.several.all
        wanted = [chain.sources[position] for position in wish.positions]
        if not self.several.candidates:
            self.several.candidates = chain.sources
        work = [(free[0], wanted, wish.rounds)]
        others = [] if wish.confirms else self.also(chain, finder, len(free) - 1, wish.positions)
        for one, position in zip(free[1:], others, strict=False):
            work.append((one, [chain.sources[position]], BATCH))
        laboratory = self.several.session.laboratory
        before = {one.name for rounds in laboratory.rounds.values() for one in rounds}
        self.several.carry_out(work)
        asked = dict.fromkeys([*wish.positions, *others])
        for position in asked:
            if chain.sources[position].key in laboratory.failures:
                self._cannot(chain, finder, position)
        new = [
            (told.at_unix_s, position, laboratory.project.metric.value(told.values))
            for position in asked
            for told in laboratory.rounds.get(chain.sources[position].key, [])
            if told.name not in before
        ]
        for _, position, value in sorted(new):
            if position not in finder.failed:
                finder.measured(position, self.sample(value))


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
