"""All that a verb of `deconvoy history` works with, opened from a project file."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from deconvoy.bench import machine
from deconvoy.errors import UserError
from deconvoy.files import cache_folder
from deconvoy.history.builds import Builder, key_of
from deconvoy.history.laboratory import Laboratory
from deconvoy.history.project import Project, load
from deconvoy.history.repository import Repository, Revision, open_repository
from deconvoy.history.store import Store, default_place
from deconvoy.history.verdict import Limits
from deconvoy.history.walk import Chain, Search, chain_of


@dataclass
class Session:
    """A project with its repository, its store and the machine that measures."""

    project: Project
    repository: Repository
    store: Store
    laboratory: Laboratory

    def keys(self, revisions: Sequence[Revision]) -> list[str]:
        """What each revision is built from."""
        inputs = self.repository.inputs(revisions, self.project.build.inputs)
        if self.project.names_revisions:
            inputs = [one.id for one in revisions]
        return [key_of(self.laboratory.builder.recipe, one) for one in inputs]

    def revisions(self) -> list[Revision]:
        """Those that the project file names, oldest first.

        Raises UserError when there is no such range.
        """
        project = self.project
        if project.range is None:
            found = [self.repository.revision(name) for name in project.revisions]
        else:
            oldest, dots, newest = project.range.partition("..")
            if not dots or not oldest or not newest or newest.startswith("."):
                raise UserError(
                    f"{project.file.name}: repository.range is 'OLDEST..NEWEST', not "
                    f"{project.range!r}"
                )
            ends = self.repository.revision(oldest), self.repository.revision(newest)
            found = self.repository.chain(*ends)
        if project.touching is not None:
            touched = self.repository.touching(found, project.touching)
            if not touched:
                raise UserError(
                    f"{project.file.name}: no revision of the range touches {project.touching}"
                )
            # What was before the first is what that is compared with.
            found = [found[0], *(one for one in touched if one.id != found[0].id)]
        if len(found) < 2:
            raise UserError(f"{project.file.name}: one revision has nothing to be compared with")
        return found

    def chain(self) -> Chain:
        """Raises UserError when an input is nowhere: then nothing would tell builds apart."""
        revisions = self.revisions()
        for path in self.project.build.inputs:
            if set(self.repository.inputs(revisions, [path])) <= {self.repository.nothing}:
                raise UserError(
                    f"{self.project.file.name}: no revision of the range has {path!r}, which is "
                    f"one of build.inputs: these are files and folders, not patterns"
                )
        return chain_of(revisions, self.keys, self.repository)

    def versions(self, revisions: Sequence[Revision]) -> dict[str, str]:
        """What each revision calls itself, by its name; nothing if the project file does not say
        where that stands."""
        version = self.project.version
        if version is None:
            return {}
        inputs = self.repository.inputs(revisions, [version.file])
        known: dict[str, str | None] = {}
        for one, told in zip(revisions, inputs, strict=True):
            if told not in known:
                text = self.repository.read(one, version.file)
                found = version.pattern.search(text) if text is not None else None
                known[told] = found[1] if found else None
        pairs = ((one.id, known[told]) for one, told in zip(revisions, inputs, strict=True))
        return {id: found for id, found in pairs if found}

    def search(self, say: Callable[[str], None], confidence: float | None = None) -> Search:
        told = self.project.search | ({} if confidence is None else {"confidence": confidence})
        limits = Limits(least=math.log1p(self.project.least), **told)
        return Search(self.laboratory, self.repository, self.keys, limits, say=say)


@contextmanager
def opened(
    file: Path, say: Callable[[str], None] = lambda _: None, jobs: int = 1
) -> Iterator[Session]:
    """The session of a project file. Raises UserError when anything in it cannot be used."""
    project = load(file)
    cache = project.cache or cache_folder() / "history"
    if re.search(r"[\s\"'$`\\]", str(cache)):
        raise UserError(
            f"builds go to {cache}: many builds fail in a folder whose name has a space, a quote "
            f"or a $: name another in store.cache, or in XDG_CACHE_HOME"
        )
    repository = open_repository(project.repository, project.kind, project.folder, cache)
    store = Store(project.store or default_place(project.folder))
    builder = None
    try:
        here = store.machine(machine.describe())
        builder = Builder(project, repository.export, store, here, cache)
        laboratory = Laboratory(project, builder, store, here, say, jobs)
        yield Session(project, repository, store, laboratory)
    finally:
        if builder is not None:
            builder.close()
        store.close()
