"""Git, by its own program. Nothing is written to the repository, its work tree or its index."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from deconvoy.errors import UserError
from deconvoy.history.repository import Details, Repository, Revision, complaint, tool

FORMAT = "%H%x00%P%x00%ct%x00%an%x00%s%x00"

# Locks nothing, not even to refresh an index; asks nobody for a password; no replaced objects.
QUIETLY = {
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "LC_ALL": "C",
}


# So many revisions are offered for a range.
OFFERED = 20


def last_revisions(folder: Path) -> str | None:
    """A range of the last ones of the repository that a folder is in."""
    command = ["git", "-C", str(folder), "rev-list", "--count", "--first-parent", "HEAD"]
    try:
        done = tool(command, QUIETLY)
    except UserError:
        return None
    count = int(done.stdout) if done.returncode == 0 else 0
    return f"HEAD~{min(OFFERED, count - 1)}..HEAD" if count > 1 else None


class Git(Repository):
    """The repository that a path is in."""

    kind = "git"
    nothing = "-"

    def __init__(self, place: Path) -> None:
        self.told = str(place)
        done = tool(
            ["git", "-C", str(place), "rev-parse", "--absolute-git-dir", "--is-shallow-repository"],
            QUIETLY,
        )
        if done.returncode:
            raise UserError(f"{place} is in no Git repository: {complaint(done)}")
        folder, shallow = done.stdout.decode().split("\n")[:2]
        self._folder = folder
        if shallow == "true":
            raise UserError(
                f"{place} is a shallow repository, without its history: git fetch --unshallow"
            )

        promised = self._run("config", "--get-regexp", r"remote\..*\.promisor", "true")
        if promised.returncode == 0:
            raise UserError(
                f"{place} is a partial clone, which lacks files: git fetch --refetch --no-filter, "
                f"then git config --unset remote.origin.promisor"
            )

    @classmethod
    def cloned(cls, address: str, place: Path) -> Git:
        """A copy of the repository at an address, brought up to date."""
        if place.exists():
            done = tool(["git", "-C", str(place), "remote", "update", "--prune"], QUIETLY)
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            # Beside, then in its place: a kill leaves no half of one.
            with tempfile.TemporaryDirectory(dir=place.parent) as beside:
                new = Path(beside, "clone")
                done = tool(["git", "clone", "--quiet", "--mirror", address, str(new)], QUIETLY)
                if not done.returncode:
                    new.rename(place)
        if done.returncode:
            raise UserError(f"repository.path: {address}: {complaint(done)}")
        return cls(place)

    def _run(self, *arguments: str, given: str | None = None) -> subprocess.CompletedProcess[bytes]:
        return tool(["git", f"--git-dir={self._folder}", *arguments], QUIETLY, given)

    def _out(self, *arguments: str, given: str | None = None) -> str:
        """Raises RuntimeError when Git fails, which is nobody's mistake."""
        done = self._run(*arguments, given=given)
        if done.returncode:
            raise RuntimeError(f"git {' '.join(arguments)}: {complaint(done)}")
        return done.stdout.decode(errors="replace")

    def _log(self, *arguments: str, given: str | None = None) -> list[Revision]:
        form = ("--no-show-signature", f"--format={FORMAT}")
        parts = self._out("log", *form, *arguments, "--", given=given).split("\0")
        rows = zip(*[iter(parts)] * 5, strict=False)
        return [
            Revision(id.strip(), tuple(parents.split()), float(when), author, subject)
            for id, parents, when, author, subject in rows
        ]

    def revision(self, name: str) -> Revision:
        done = self._run(
            "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}"
        )
        if done.returncode:
            raise UserError(f"{self.told} has no revision {name!r}: a commit, a tag or a branch")
        return self._log("-1", done.stdout.decode().strip())[0]

    def chain(self, oldest: Revision, newest: Revision) -> list[Revision]:
        found = self._log("--first-parent", "--reverse", f"{oldest.id}..{newest.id}")
        if found and oldest.id in found[0].parents[:1]:
            return [oldest, *found]
        if oldest.id == newest.id:
            raise UserError(f"the range has one revision, {oldest.short}: nothing to compare")
        raise UserError(
            f"{oldest.short} is not among the first parents of {newest.short}: it may be newer, or "
            f"on another branch: `git log --first-parent {newest.short}` lists those that are"
        )

    def merged(self, merge: Revision) -> list[Revision]:
        found: list[Revision] = []
        for parent in merge.parents[1:]:
            found += self._log("--first-parent", "--reverse", parent, f"^{merge.parents[0]}")
        return found

    def brought(self, revisions: Sequence[Revision]) -> dict[str, list[Revision]]:
        # All that may have been merged, at once: a process for each merge is slow.
        merges = [one for one in revisions[1:] if one.is_merge]
        if not merges:
            return {}
        ends = f"{revisions[-1].id}\n^{revisions[0].id}\n"
        known = {one.id: one for one in self._log("--stdin", given=ends)}
        first = revisions[-1]
        line = {first.id}
        while first.parents and (first := known.get(first.parents[0], first)).id not in line:
            line.add(first.id)
        if any(one.id not in line for one in merges):
            return super().brought(revisions)
        # Of what each merge is made of, what none before it had.
        had: set[str] = set()

        def take(from_: str) -> None:
            left = [from_]
            while left:
                one = known.get(left.pop())
                if one is not None and one.id not in had:
                    had.add(one.id)
                    left += one.parents

        found: dict[str, list[Revision]] = {}
        for merge in merges:
            take(merge.parents[0])
            found[merge.id] = []
            for parent in merge.parents[1:]:
                branch = []
                while parent in known and parent not in had:
                    branch.append(known[parent])
                    parent = next(iter(known[parent].parents), "")
                found[merge.id] += reversed(branch)
        return found

    def tags(self) -> dict[str, str]:
        form = "%(objectname) %(*objectname) %(refname:short)"
        found: dict[str, str] = {}
        for line in self._out("for-each-ref", f"--format={form}", "refs/tags").splitlines():
            own, of, name = line.split(" ", 2)
            found.setdefault(of or own, name)
        return found

    def inputs(self, revisions: Sequence[Revision], paths: Sequence[str]) -> list[str]:
        if not paths or "." in paths:
            asked = "".join(f"{one.id}^{{tree}}\n" for one in revisions)
            width = 1
        else:
            asked = "".join(f"{one.id}:{path}\n" for one in revisions for path in paths)
            width = len(paths)
        lines = self._out("cat-file", "--batch-check=%(objectname)", given=asked).splitlines()
        # A path that a revision lacks is told with that revision's name, which says nothing here.
        names = ["-" if line.endswith("missing") else line for line in lines]
        rows = zip(*[iter(names)] * width, strict=True)
        return [" ".join(row) for row in rows]

    def touching(self, revisions: Sequence[Revision], path: str) -> list[Revision]:
        oldest, newest = revisions[0], revisions[-1]
        told = self._out(
            *("log", "--first-parent", "--format=%H", f"{oldest.id}..{newest.id}", "--", path)
        )
        several = set(told.split())
        return [one for one in revisions if one.id in several]

    def export(self, revision: Revision, folder: Path) -> None:
        # Not by `git archive`, which leaves out what an attribute says. The index is our own.
        with tempfile.TemporaryDirectory() as own:
            environment = QUIETLY | {"GIT_INDEX_FILE": f"{own}/index", "GIT_DIR": self._folder}
            for arguments in (
                ["read-tree", revision.id],
                ["checkout-index", "--all", f"--prefix={folder}/"],
            ):
                command = ["git", f"--work-tree={folder}", *arguments]
                done = tool(command, environment)
                if done.returncode:
                    raise RuntimeError(f"git {' '.join(arguments)}: {complaint(done)}")

    def read(self, revision: Revision, path: str) -> str | None:
        done = self._run("cat-file", "blob", f"{revision.id}:{path}")
        return None if done.returncode else done.stdout.decode(errors="replace")

    def details(self, revision: Revision) -> Details:
        message = self._out("log", "-1", "--format=%B", revision.id, "--").strip()
        told = self._out(
            *("log", "-1", "-m", "--first-parent", "--name-status", "--no-renames"),
            *("--format=", "-z", "--root", revision.id, "--"),
        )
        parts = told.strip("\0\n").split("\0")
        pairs = zip(parts[::2], parts[1::2], strict=False)
        return Details(message, tuple(f"{what.strip()} {path}" for what, path in pairs))
