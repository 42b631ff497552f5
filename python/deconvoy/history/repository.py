"""Repositories, read only: which revisions there are, how they hang together, what is in them."""

from __future__ import annotations

import os
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from deconvoy.errors import UserError
from deconvoy.history.project import short_hash

# What Git is told in hooks and by `rebase --exec`: of another repository than is meant.
LOCAL_TO_A_REPOSITORY = (
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_DIR",
    "GIT_GRAFT_FILE",
    "GIT_INDEX_FILE",
    "GIT_NAMESPACE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_PREFIX",
    "GIT_SHALLOW_FILE",
    "GIT_WORK_TREE",
)

# Of a revision's name, as much as people use.
SHORT = 10


@dataclass(frozen=True)
class Revision:
    """One revision: its full name, those it was made from (the one that it follows first), when in
    seconds since 1970, by whom, what was said in the first line."""

    id: str
    parents: tuple[str, ...]
    when_s: float
    author: str
    subject: str

    @property
    def short(self) -> str:
        return self.id[:SHORT]

    @property
    def is_merge(self) -> bool:
        return len(self.parents) > 1


@dataclass(frozen=True)
class Details:
    """All that was said of a revision, and the files that it touched, as `A path`, `M path`."""

    message: str
    files: tuple[str, ...]


class Repository(ABC):
    """A repository that is never written to.

    Methods raise UserError for what the user can mend: no such revision, no such range.
    """

    kind: str
    told: str
    # What `inputs` gives for a path that a revision has not.
    nothing: str

    @abstractmethod
    def revision(self, name: str) -> Revision:
        """The one that has this name, or a name that begins so, or this tag or branch."""

    @abstractmethod
    def chain(self, oldest: Revision, newest: Revision) -> list[Revision]:
        """From one to the other, oldest first: those that follow one another, without what was
        merged into them."""

    @abstractmethod
    def merged(self, merge: Revision) -> list[Revision]:
        """What a merge brought, oldest first: the merged branch from where it left."""

    def brought(self, revisions: Sequence[Revision]) -> dict[str, list[Revision]]:
        """As `merged`, of each merge after the first of some revisions, by its name."""
        return {one.id: self.merged(one) for one in revisions[1:] if one.is_merge}

    @abstractmethod
    def tags(self) -> dict[str, str]:
        """Of each revision that has tags, the first of them, by its name."""

    @abstractmethod
    def inputs(self, revisions: Sequence[Revision], paths: Sequence[str]) -> list[str]:
        """Of each revision, a name of what is at the paths (of everything, if there are none)."""

    @abstractmethod
    def touching(self, revisions: Sequence[Revision], path: str) -> list[Revision]:
        """Those in which something changed at a path."""

    @abstractmethod
    def export(self, revision: Revision, folder: Path) -> None:
        """Its files into an empty folder."""

    @abstractmethod
    def read(self, revision: Revision, path: str) -> str | None:
        """A text file of it; None if it has none there."""

    @abstractmethod
    def details(self, revision: Revision) -> Details:
        pass


def tool(
    command: Sequence[str], environment: Mapping[str, str], given: str | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Runs a program of a repository's kind. Raises UserError when it is not installed."""
    ours = {name: told for name, told in os.environ.items() if name not in LOCAL_TO_A_REPOSITORY}
    try:
        return subprocess.run(
            command,
            env=ours | dict(environment),
            input=None if given is None else given.encode(),
            stdin=subprocess.DEVNULL if given is None else None,
            capture_output=True,
            check=False,
            # Ctrl-C is ours: it is no failure of theirs.
            start_new_session=True,
        )
    except FileNotFoundError:
        raise UserError(f"{command[0]} is not installed (Debian: {command[0]})") from None


def complaint(done: subprocess.CompletedProcess[bytes]) -> str:
    """The last line of what a program complained of."""
    lines = [line for line in done.stderr.decode(errors="replace").splitlines() if line.strip()]
    return lines[-1].strip() if lines else f"exit status {done.returncode}"


def is_address(told: str) -> bool:
    return "://" in told or (":" in told and "/" not in told.partition(":")[0])


def open_repository(told: str, kind: str | None, beside: Path, cache: Path) -> Repository:
    """The repository at a path (as seen from the folder `beside`) or at an address, of which a
    copy is kept in `cache`. Raises UserError when there is none."""
    from deconvoy.history.fossil import Fossil, is_fossil
    from deconvoy.history.git import Git

    copies = cache / "repositories"
    if is_address(told):
        fossil = kind == "fossil" or (kind is None and told.endswith(".fossil"))
        name = copies / f"{short_hash(told)}.{'fossil' if fossil else 'git'}"
        return Fossil.cloned(told, name) if fossil else Git.cloned(told, name)
    place = beside / Path(told).expanduser()
    if not place.exists():
        raise UserError(f"repository.path: there is no {place}")
    if kind == "fossil" or (kind is None and is_fossil(place)):
        return Fossil(place, copies)
    return Git(place)
