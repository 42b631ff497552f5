"""Builds of revisions: made in folders of their own, kept by what they are made of."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import IO

from deconvoy.bench.guard import guard
from deconvoy.errors import UserError
from deconvoy.files import make_writable, remove, write_whole
from deconvoy.history.process import Stopped, WaitsForInput, last_lines, run
from deconvoy.history.project import HEEDED, NOT_OF_A_BENCHMARK, Project, filled, short_hash
from deconvoy.history.repository import LOCAL_TO_A_REPOSITORY, Revision
from deconvoy.history.store import Failure, Store

# In a build's folder: the files of the revision, those of the benchmark, what the steps printed,
# and, written last, what tells that it is whole.
TREE, BENCHMARK, LOG, DONE = "tree", "benchmark", "log.txt", "done.json"

WAITS = "waits for input, which nobody will type: make it ask nothing (an option, or `yes |`)"

# Of ours, that a step shall not see.
HIDDEN = ("LD_PRELOAD", *LOCAL_TO_A_REPOSITORY)


# Puts the files of a revision into an empty folder.
Export = Callable[[Revision, Path], None]


@dataclass(frozen=True)
class Source:
    """A revision with the name of what it is built from, which others may have, too."""

    revision: Revision
    key: str


def key_of(recipe: str, inputs: str) -> str:
    return short_hash([recipe, inputs])


def environment_of(
    told: tuple[tuple[str, str], ...], heeded: Mapping[str, str], fields: Mapping[str, object]
) -> dict[str, str]:
    """What a step or a run sees: ours, and what the project file says. `heeded`: of the project."""
    ours = {name: value for name, value in os.environ.items() if name not in (*HIDDEN, *HEEDED)}
    return ours | dict(heeded) | {name: filled(value, fields) for name, value in told}


class Builder:
    """Makes builds, keeps them in a folder up to a size, and tells a store how each ended."""

    def __init__(
        self, project: Project, export: Export, store: Store, machine: int, cache: Path
    ) -> None:
        self.project = project
        self.recipe = project.recipe()
        self._export = export
        self._store = store
        self._machine = machine
        self._folder = cache / "builds"
        self._wanted: set[str] = set()
        # Of these builds the store knows.
        self.told = store.built_keys(self.recipe)
        self._use: IO[bytes] | None = None
        self.made = 0

    def place(self, key: str) -> Path:
        return self._folder / key

    def fields(self, source: Source) -> dict[str, object]:
        """What a command may have in braces, of a build."""
        place = self.place(source.key)
        return {
            "revision": source.revision.id,
            "build": place / TREE,
            "benchmark": place / BENCHMARK,
        }

    def want(self, keys: set[str]) -> None:
        """These are needed from now on, and not removed to make room."""
        self._wanted = keys

    def has(self, key: str) -> bool:
        return (self.place(key) / DONE).is_file()

    def ensure(self, source: Source) -> Failure | None:
        """Builds it, unless it is built; why it could not be built."""
        self.hold()
        place = self.place(source.key)
        with self._locked(source.key):
            if self.has(source.key):
                self._used(source, place)
                return None
            remove(place)
            begun = time.monotonic()
            with guard.half_made(place):
                failure = self._make(source, place)
                seconds = time.monotonic() - begun
                if failure is None:
                    self._trim(place)
                    about = {"bytes": size_of(place), "seconds": seconds}
                    write_whole(place / DONE, json.dumps(about))
                else:
                    remove(place)
            self.made += 1
            self._tell(source, seconds, failure)
        return failure

    def _used(self, source: Source, place: Path) -> None:
        """A build that is there. Whoever made it may have been killed before its store knew."""
        with suppress(OSError):
            os.utime(place / DONE)
        if source.key not in self.told:
            seconds = float(json.loads((place / DONE).read_text())["seconds"])
            self._tell(source, seconds, None)

    def _tell(self, source: Source, seconds: float, failure: Failure | None) -> None:
        revision = source.revision.id
        self._store.built(source.key, self.recipe, revision, self._machine, seconds, failure)
        self.told.add(source.key)

    def close(self) -> None:
        """Makes room; others may remove builds from now on."""
        if self._use is not None:
            self._wanted = set()
            self.make_room()
            self._use.close()
            self._use = None

    @contextmanager
    def _locked(self, key: str) -> Iterator[None]:
        """One process at a time makes a build."""
        with (self._folder / f"{key}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _make(self, source: Source, place: Path) -> Failure | None:
        project = self.project
        tree, benchmark = place / TREE, place / BENCHMARK
        tree.mkdir()
        try:
            self._export(source.revision, tree)
        except (RuntimeError, OSError) as error:
            # Of the machine, not of the revision: nothing is kept of it.
            if guard.stopping:
                raise Stopped from None
            raise UserError(f"{source.revision.short} cannot be checked out: {error}") from None
        if project.benchmark.folder is not None:
            ignored = shutil.ignore_patterns(*NOT_OF_A_BENCHMARK)
            shutil.copytree(project.benchmark.folder, benchmark, symlinks=True, ignore=ignored)
        else:
            benchmark.mkdir()
        fields = self.fields(source)
        inside = tree / project.build.folder
        if not inside.is_dir():
            return Failure("check out", f"there is no folder {project.build.folder}")
        environment = environment_of(project.build.environment, project.heeded, fields)
        for steps, folder in ((project.build.steps, inside), (project.benchmark.steps, benchmark)):
            for step in steps:
                failure = self._step(filled(step, fields), step, folder, environment, place / LOG)
                if failure is not None:
                    return failure
        return None

    def _step(
        self, step: str, told: str, folder: Path, environment: dict[str, str], log: Path
    ) -> Failure | None:
        limit_s = self.project.build.limit_s
        with log.open("a+b") as output:
            output.write(f"$ {step}\n".encode())
            output.flush()
            begin = output.tell()
            try:
                command = ["/bin/sh", "-ec", step]
                ended = run(command, folder, environment, limit_s, output, watch_input=True)
            except WaitsForInput:
                return Failure(told, WAITS)
            if ended.well:
                return None
            said = last_lines(output, begin)
        return Failure(told, f"{ended.how()}; it said: {said}" if said else ended.how())

    def _trim(self, place: Path) -> None:
        """Leaves what is to be kept."""
        keep = self.project.build.keep
        if not keep:
            return
        tree = place / TREE
        make_writable(tree)
        for folder, _, files in os.walk(tree, topdown=False):
            for name in files:
                path = Path(folder, name)
                inside = str(path.relative_to(tree))
                if not any(fnmatch(inside, one) or fnmatch(name, one) for one in keep):
                    path.unlink()
            with suppress(OSError):
                os.rmdir(folder)

    def hold(self) -> None:
        """Until it is closed no other process removes builds: it may be using them.

        Raises UserError when there can be no such folder.
        """
        if self._use is None:
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
                self._use = (self._folder / "use.lock").open("wb")
            except OSError as error:
                raise UserError(
                    f"builds cannot go to {self._folder}: {error.strerror}: name another folder in "
                    f"store.cache"
                ) from None
        fcntl.flock(self._use, fcntl.LOCK_SH)

    def make_room(self) -> int:
        """Removes builds that were not used for longest until the rest is no larger than what the
        project file says; bytes that are wanted beyond that. While another process uses builds,
        none is removed: the last that ends makes room."""
        if self._use is None:
            return 0
        try:
            fcntl.flock(self._use, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            # A lock that could not be raised may be gone.
            self.hold()
            return 0
        try:
            return self._remove_oldest()
        finally:
            self.hold()

    def _remove_oldest(self) -> int:
        found = []
        for done in self._folder.glob(f"*/{DONE}"):
            with suppress(OSError, ValueError):
                about = json.loads(done.read_text())
                found.append((done.stat().st_mtime, int(about["bytes"]), done.parent))
        total = sum(size for _, size, _ in found)
        for _, size, place in sorted(found):
            if total <= self.project.cache_bytes:
                break
            if place.name in self._wanted:
                continue
            with self._locked(place.name):
                # First what tells that it is whole: a kill leaves nothing that seems so.
                (place / DONE).unlink(missing_ok=True)
                remove(place)
            total -= size
        return max(0, total - self.project.cache_bytes)


def size_of(folder: Path) -> int:
    """What the files of a folder take, in bytes."""
    total = 0
    for inside, _, files in os.walk(folder):
        for name in files:
            with suppress(OSError):
                total += os.lstat(Path(inside, name)).st_blocks * 512
    return total
