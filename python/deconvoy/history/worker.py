"""What a worker of a cluster does for a sweep or a search: it is sent a project, revisions with
their files, and how often each is to be measured."""

from __future__ import annotations

import hashlib
import io
import tarfile
import tempfile
import tomllib
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from deconvoy.bench import machine as machines
from deconvoy.bench.cluster import alone
from deconvoy.files import cache_folder
from deconvoy.history.builds import Builder, Export, Source
from deconvoy.history.laboratory import Laboratory
from deconvoy.history.project import NAME, Project, files_of, parse, short_hash
from deconvoy.history.repository import Revision
from deconvoy.history.store import Store
from deconvoy.history.walk import Busy


@dataclass(frozen=True)
class Sent:
    """A project as it goes to another machine: the file without the address of the store, which may
    have a password, the variables that builds heed here, and the benchmark's own files."""

    data: dict[str, Any]
    heeded: dict[str, str]
    files: dict[str, tuple[int, bytes]]

    @classmethod
    def of(cls, project: Project) -> Sent:
        files = {}
        if (folder := project.benchmark.folder) is not None:
            for path in files_of(folder):
                name = str(path.relative_to(folder))
                files[name] = (path.stat().st_mode & 0o777, path.read_bytes())
        data = tomllib.loads(project.file.read_text())
        data.pop("store", None)
        return cls(data, dict(project.heeded), files)

    def opened(self, cache: Path) -> Project:
        """On the other machine."""
        project = parse(self.data, cache / NAME, has_folder=False)
        folder = self._unpacked(cache / "projects") if self.files else None
        benchmark = replace(project.benchmark, folder=folder)
        return replace(project, benchmark=benchmark, heeded=self.heeded)

    def _unpacked(self, projects: Path) -> Path:
        """The benchmark's files, in a folder that is there whole or not at all."""
        names = [
            (name, mode, hashlib.sha256(told).hexdigest())
            for name, (mode, told) in sorted(self.files.items())
        ]
        place = projects / short_hash(names)
        if place.exists():
            return place
        projects.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=projects) as beside:
            new = Path(beside, "new")
            for name, (mode, content) in self.files.items():
                file = new / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content)
                file.chmod(mode)
            with suppress(OSError):
                # Another worker of this machine may have been quicker.
                new.rename(place)
        return place


@dataclass(frozen=True)
class Wanted:
    """A revision that a machine builds, and measures so often. `made`: rounds that there are
    already; `is_told`: the store knows that it was built."""

    source: Source
    rounds: int
    made: int
    is_told: bool


@dataclass(frozen=True)
class Task:
    """What a machine measures in turn. `turn`: how many such tasks there were before."""

    wanted: tuple[Wanted, ...]
    trees: dict[str, bytes]
    turn: int


def unpacked(trees: dict[str, bytes]) -> Export:
    """Puts what was sent of a revision into a folder."""

    def export(revision: Revision, folder: Path) -> None:
        with tarfile.open(fileobj=io.BytesIO(trees[revision.id])) as archive:
            archive.extractall(folder, filter="tar")

    return export


def carry_out(sent: Sent, task: Task) -> dict[str, Any]:
    """In a worker: builds and measures, while nobody else does on this machine; what its store has
    then. `lacks`: revisions whose files are to be sent first; then nothing was done."""
    cache = cache_folder() / "history"
    project = sent.opened(cache)
    with alone(), tempfile.TemporaryDirectory() as own:
        store = Store(str(Path(own, "store.db")))
        here = store.machine(machines.describe())
        builder = Builder(project, unpacked(task.trees), store, here, cache)
        try:
            builder.hold()
            lacks = [
                one.source.revision.id
                for one in task.wanted
                if not builder.has(one.source.key) and one.source.revision.id not in task.trees
            ]
            if lacks:
                return {"lacks": lacks}
            builder.want({one.source.key for one in task.wanted})
            builder.told |= {one.source.key for one in task.wanted if one.is_told}
            laboratory = Laboratory(project, builder, store, here)
            laboratory.elsewhere = {one.source.key: one.made for one in task.wanted}
            busy = not measured(laboratory, task)
            return {
                "builds": store.all_of("builds"),
                "runs": store.all_of("runs"),
                "made": builder.made,
                "busy": busy,
                "dropped": laboratory.dropped,
            }
        finally:
            builder.close()
            store.close()


def measured(laboratory: Laboratory, task: Task) -> bool:
    """Whether it could be measured: not if the machine was too busy."""
    able = [one for one in task.wanted if laboratory.ensure(one.source)]
    for number in range(max((one.rounds for one in able), default=0)):
        for one in able if (number + task.turn) % 2 == 0 else able[::-1]:
            if one.source.key in laboratory.failures or number >= one.rounds:
                continue
            try:
                laboratory.measure(one.source)
            except Busy:
                return False
    return True
