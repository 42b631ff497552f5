"""Files that a command writes: where, looked at before it begins, and written whole or not at
all."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from deconvoy.errors import UserError


def cache_folder() -> Path:
    """Where deconvoy keeps what it can make again; it may not exist."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base).absolute() / "deconvoy"


def make_writable(folder: Path) -> None:
    """A folder and those in it, also if they cannot be read; what links lead to stays as it is."""
    with suppress(OSError):
        os.chmod(folder, 0o700)
    for inside, folders, _ in os.walk(folder):
        for path in (os.path.join(inside, name) for name in folders):
            if not os.path.islink(path):
                with suppress(OSError):
                    os.chmod(path, 0o700)


def remove(folder: Path) -> None:
    """A folder with all that is in it, also what somebody has made read-only."""
    make_writable(folder)
    shutil.rmtree(folder, ignore_errors=True)


def check_new(path: Path, force: bool) -> None:
    """Raises UserError unless a file may be written to `path`; `force`: in place of another."""
    folder = path.parent
    try:
        if not folder.is_dir():
            raise UserError(f"cannot write {path}: there is no folder {folder}: make it first")
        if not os.access(folder, os.W_OK | os.X_OK):
            raise UserError(f"cannot write to {folder}: Permission denied")
        if path.is_dir():
            raise UserError(f"{path} is a folder: name a file")
        if path.exists() and not path.is_file():
            raise UserError(f"{path} is no regular file: name another")
        if path.exists() and not force:
            raise UserError(f"{path} exists: --force replaces it")
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from None


def write_whole(path: Path, content: str | bytes, mode: int = 0o600) -> None:
    """Writes the file anew (text as UTF-8) beside the old one and then in its place: a kill at any
    point leaves one or the other, whole. A link stays a link.

    Raises OSError when it cannot be written.
    """
    place = path.resolve()
    handle, name = tempfile.mkstemp(dir=place.parent, prefix=place.name, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
        os.chmod(name, mode)
        os.replace(name, place)
    except BaseException:
        os.unlink(name)
        raise
