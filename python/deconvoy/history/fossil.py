"""Fossil, by its own program on a copy of the repository: the user's own is only read."""

from __future__ import annotations

import fcntl
import shutil
import sqlite3
import tarfile
import tempfile
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import IO

from deconvoy.errors import UserError
from deconvoy.history.project import short_hash
from deconvoy.history.repository import Details, Repository, Revision, complaint, tool

# Files in the folder of an open check-out.
CHECKOUTS = (".fslckout", "_FOSSIL_")

# As `event.mtime` is kept: days, from noon.
UNIX_DAYS = 2440587.5
DAY_S = 86400.0

FILES = "SELECT filename, uuid FROM files_of_checkin('{id}') ORDER BY 1;"

# In order, from a revision back along those that each follows.
PRIMARY = """
WITH RECURSIVE back(rid, far) AS (
    SELECT ?, 0 UNION ALL
    SELECT pid, far + 1 FROM back JOIN plink ON cid = rid AND isprim)
SELECT rid FROM back ORDER BY far
"""

ABOUT = """
SELECT uuid, mtime, coalesce(euser, user, ''), coalesce(ecomment, comment, '')
FROM blob JOIN event ON objid = rid WHERE rid = ? AND type = 'ci'
"""


def is_fossil(place: Path) -> bool:
    """Whether a path is a repository file, or in an open check-out of one."""
    return checkout_of(place) is not None if place.is_dir() else is_repository(place)


def is_repository(file: Path) -> bool:
    try:
        with file.open("rb") as opened:
            if not opened.read(16).startswith(b"SQLite format 3"):
                return False
        with closing(_peek(file)) as database:
            query = "SELECT count(*) FROM sqlite_master WHERE name IN ('blob', 'plink', 'event')"
            return bool(database.execute(query).fetchone()[0] == 3)
    except (OSError, sqlite3.Error):
        return False


def checkout_of(folder: Path) -> Path | None:
    """The repository of the check-out that a folder is in."""
    for place in (folder.absolute(), *folder.absolute().parents):
        for name in CHECKOUTS:
            if (place / name).is_file():
                with closing(_peek(place / name)) as database:
                    query = "SELECT value FROM vvar WHERE name = 'repository'"
                    row = database.execute(query).fetchone()
                return None if row is None else place / row[0]
    return None


class Fossil(Repository):
    """A repository file, or that of the check-out that a folder is in; a copy is kept in `copies`,
    made anew when it has changed."""

    kind = "fossil"
    nothing = short_hash([])

    def __init__(self, place: Path, copies: Path) -> None:
        self.told = str(place)
        file = checkout_of(place) if place.is_dir() else place
        if file is None:
            raise UserError(f"{place} is in no open check-out of Fossil: name the repository file")
        if not is_repository(file):
            raise UserError(f"{file} is no Fossil repository")
        self._copy, self._held = _copy_of(file, copies)
        self._database = _at(self._copy)

    @classmethod
    def cloned(cls, address: str, place: Path) -> Fossil:
        """A copy of the repository at an address, brought up to date."""
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.exists():
            done = tool(["fossil", "pull", address, "-R", str(place)], _own(place.parent))
        else:
            with tempfile.TemporaryDirectory(dir=place.parent) as beside:
                new = Path(beside, "clone")
                command = ["fossil", "clone", "--once", address, str(new)]
                done = tool(command, _own(place.parent))
                if new.exists() and not done.returncode:
                    new.rename(place)
        if done.returncode:
            raise UserError(f"repository.path: {address}: {complaint(done)}")
        return cls(place, place.parent)

    def _fossil(self, *arguments: str, given: str | None = None) -> bytes:
        """Raises RuntimeError when Fossil fails, which is nobody's mistake."""
        command = ["fossil", *arguments]
        done = tool(command, _own(self._copy.parent), given)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {complaint(done)}")
        return done.stdout

    def _sql(self, *queries: str) -> list[list[str]]:
        """By Fossil's own SQL, which knows names and files of revisions."""
        told = ".mode ascii\n" + "\n".join(queries)
        out = self._fossil("sql", "--readonly", "-R", str(self._copy), given=told)
        rows = out.decode(errors="replace").split("\x1e")
        return [row.split("\x1f") for row in rows if row.strip("\n")]

    def _of(self, rid: int) -> Revision:
        row = self._database.execute(ABOUT, (rid,)).fetchone()
        if row is None:
            raise UserError(f"{self.told}: artifact {rid} is no check-in: the clone lacks it")
        parents = self._database.execute(
            "SELECT uuid FROM plink JOIN blob ON rid = pid WHERE cid = ? ORDER BY NOT isprim, pid",
            (rid,),
        )
        id, mtime, author, comment = row
        return Revision(
            id,
            tuple(parent for (parent,) in parents),
            (mtime - UNIX_DAYS) * DAY_S,
            author,
            comment.strip().split("\n")[0],
        )

    def oldest(self) -> Revision:
        """The first check-in."""
        query = "SELECT objid FROM event WHERE type = 'ci' ORDER BY mtime, objid LIMIT 1"
        return self._of(self._database.execute(query).fetchone()[0])

    def _rid(self, revision: Revision) -> int:
        row = self._database.execute("SELECT rid FROM blob WHERE uuid = ?", (revision.id,))
        return int(row.fetchone()[0])

    def revision(self, name: str) -> Revision:
        quoted = name.replace("'", "''")
        rows = self._sql(f"SELECT symbolic_name_to_rid('{quoted}', 'ci');")
        rid = int(rows[0][0]) if rows and rows[0][0].lstrip("-").isdecimal() else 0
        if rid <= 0:
            raise UserError(f"{self.told} has no check-in {name!r}: a hash, a tag or a branch")
        return self._of(rid)

    def chain(self, oldest: Revision, newest: Revision) -> list[Revision]:
        if oldest.id == newest.id:
            raise UserError(f"the range has one check-in, {oldest.short}: nothing to compare")
        end = self._rid(oldest)
        rids = []
        for (rid,) in self._database.execute(PRIMARY, (self._rid(newest),)):
            rids.append(rid)
            if rid == end:
                return [self._of(one) for one in reversed(rids)]
        raise UserError(
            f"{oldest.short} is not among the primary ancestors of {newest.short}: it may be "
            f"newer, or on another branch: `fossil timeline parents {newest.short}` lists them"
        )

    def merged(self, merge: Revision) -> list[Revision]:
        if not merge.is_merge:
            return []
        mine = {rid for (rid,) in self._database.execute(PRIMARY, (self._rid(merge),))}
        found: list[Revision] = []
        rows = self._database.execute(
            "SELECT pid FROM plink WHERE cid = ? AND NOT isprim ORDER BY pid", (self._rid(merge),)
        ).fetchall()
        for (parent,) in rows:
            branch = []
            for (rid,) in self._database.execute(PRIMARY, (parent,)):
                if rid in mine:
                    break
                branch.append(self._of(rid))
            found += reversed(branch)
        return found

    def tags(self) -> dict[str, str]:
        rows = self._database.execute(
            """SELECT uuid, substr(tagname, 5) FROM tagxref JOIN tag USING (tagid)
            JOIN blob USING (rid) WHERE tagname GLOB 'sym-*' AND tagtype = 1
            ORDER BY tagname DESC"""
        )
        return dict(rows.fetchall())

    def inputs(self, revisions: Sequence[Revision], paths: Sequence[str]) -> list[str]:
        found = []
        everything = not paths or "." in paths
        inside = tuple(f"{path.rstrip('/')}/" for path in paths)
        end = "SELECT '', '';"
        queries = [FILES.format(id=one.id) + end for one in revisions]
        files: list[list[str]] = []
        for name, artifact in self._sql(*queries):
            if not name:
                found.append(short_hash(files))
                files = []
            elif everything or name in paths or name.startswith(inside):
                files.append([name, artifact])
        return found

    def touching(self, revisions: Sequence[Revision], path: str) -> list[Revision]:
        names = self.inputs(revisions, [path])
        pairs = zip(revisions[1:], names, names[1:], strict=False)
        return [one for one, before, after in pairs if before != after]

    def export(self, revision: Revision, folder: Path) -> None:
        with tempfile.TemporaryDirectory() as own:
            archive = Path(own, "tree.tar.gz")
            command = ("tarball", revision.id, str(archive), "--name", "tree")
            self._fossil(*command, "-R", str(self._copy))
            with tarfile.open(archive) as opened:
                opened.extractall(own, filter="tar")
            # The first check-in of a new repository has no files.
            for inside in Path(own).glob("tree/*"):
                shutil.move(inside, folder / inside.name)

    def read(self, revision: Revision, path: str) -> str | None:
        command = ["fossil", "cat", path, "-r", revision.id, "-R", str(self._copy)]
        done = tool(command, _own(self._copy.parent))
        return None if done.returncode else done.stdout.decode(errors="replace")

    def details(self, revision: Revision) -> Details:
        rid = self._rid(revision)
        message = self._database.execute(ABOUT, (rid,)).fetchone()[3].strip()
        # Of a merge there are changes against each parent: against the one that it follows.
        rows = self._database.execute(
            """SELECT name, mlink.pid, fid FROM mlink JOIN filename USING (fnid)
            WHERE mid = ? AND (pmid = 0 OR pmid = (SELECT pid FROM plink
                WHERE cid = mlink.mid AND isprim)) ORDER BY name""",
            (rid,),
        )
        files = [
            f"{'D' if not now else 'A' if not before else 'M'} {name}" for name, before, now in rows
        ]
        return Details(message, tuple(dict.fromkeys(files)))


def _own(folder: Path) -> dict[str, str]:
    """Fossil keeps a list of the repositories that it has seen: in a folder of ours."""
    home = folder / "fossil-home"
    home.mkdir(parents=True, exist_ok=True)
    return {"HOME": str(home), "FOSSIL_HOME": str(home), "FOSSIL_USER": "deconvoy"}


def _copy_of(file: Path, copies: Path) -> tuple[Path, IO[bytes]]:
    """A copy of a repository, which is whole whatever is written meanwhile, and which stays as long
    as what it is opened by."""
    of = short_hash(str(file.resolve()))
    state = _state(file)
    place = copies / f"{of}-{short_hash(state)}.copy.fossil"
    with suppress(FileNotFoundError):
        return place, _held(place)
    copies.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=copies) as beside:
        source, new = Path(beside, "source"), Path(beside, "copy")
        if _logs_ahead(file):
            # To read it where it is, SQLite would put files beside it.
            copied = None
            while copied != _state(file):
                copied = _state(file)
                with suppress(FileNotFoundError):
                    for path in _parts(file):
                        shutil.copyfile(path, f"{source}{path.name.removeprefix(file.name)}")
        else:
            source = file
        with closing(_at(source)) as opened, closing(sqlite3.connect(new)) as copy:
            opened.backup(copy)
            copy.execute("PRAGMA journal_mode=DELETE")
        held = _held(new)
        new.rename(place)
    for old in copies.glob(f"{of}-*.copy.fossil"):
        # Another process may use it.
        with suppress(OSError), old.open("rb") as opened:
            if old != place:
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
                old.unlink(missing_ok=True)
    return place, held


def _held(file: Path) -> IO[bytes]:
    opened = file.open("rb")
    fcntl.flock(opened, fcntl.LOCK_SH)
    return opened


def _logs_ahead(file: Path) -> bool:
    """Whether what is written to a database goes to a file beside it first (WAL)."""
    with file.open("rb") as opened:
        return opened.read(20)[18:] == b"\x02\x02"


def _at(file: Path, how: str = "mode=ro") -> sqlite3.Connection:
    return sqlite3.connect(f"{file.absolute().as_uri()}?{how}", uri=True)


def _peek(file: Path) -> sqlite3.Connection:
    """A database of the user's, for what it says since long: nothing is put beside it."""
    return _at(file, "mode=ro&immutable=1" if _logs_ahead(file) else "mode=ro")


def _state(file: Path) -> list[tuple[int, int]]:
    return [(path.stat().st_mtime_ns, path.stat().st_size) for path in _parts(file)]


def _parts(file: Path) -> list[Path]:
    """The repository, and what was written to it lately, if SQLite keeps that beside it."""
    return [path for path in (file, Path(f"{file}-wal")) if path.exists()]
