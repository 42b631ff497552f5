"""The CPythons of this machine: found by looking into PATH, pyenv, and deconvoy's own cache."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from deconvoy._native import inspect_elf
from deconvoy.program import judge

NAME = re.compile(r"python(\d(\.\d+)?t?)?")


@dataclass(frozen=True)
class Interpreter:
    # The executable as found: a name in a virtual environment is not its target's.
    path: Path
    # "3.11.7"; only "3.9" where the file says no more.
    version: str
    is_free_threaded: bool
    # Its libpython is a library of its own.
    is_shared: bool
    source: str
    # Why its GIL cannot be served, told from the file.
    why_not: str | None

    @property
    def short_version(self) -> str:
        """`3.11`, `3.13t`."""
        return ".".join(self.version.split(".")[:2]) + "t" * self.is_free_threaded

    @property
    def can_be_served(self) -> bool:
        return self.why_not is None

    def sort_key(self) -> tuple[list[int], bool]:
        major_minor = re.findall(r"\d+", self.version)[:2]
        return [int(part) for part in major_minor], self.is_free_threaded


def find_interpreters() -> list[Interpreter]:
    """Every CPython, each file once, oldest version first; of one version, that in PATH first."""
    found: dict[tuple[int, int], Interpreter] = {}
    for path, source in candidates():
        # An installed CPython can have two names that are hard links.
        status = path.stat()
        file = (status.st_dev, status.st_ino)
        if file not in found and (interpreter := inspect(path, source)):
            found[file] = interpreter
    return sorted(found.values(), key=Interpreter.sort_key)


def brought() -> Path:
    """Where `ci/interpreters` and `ci/rubies` put what they bring."""
    return Path(os.environ.get("DECONVOY_CACHE") or Path.home() / ".cache/deconvoy")


def candidates() -> Iterator[tuple[Path, str]]:
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    places = [(Path(folder), "PATH") for folder in os.get_exec_path()]
    places += [(folder, "pyenv") for folder in sorted(pyenv.glob("versions/*/bin"))]
    places += [(folder, "cache") for folder in sorted(brought().glob("interpreters/*/bin"))]
    for folder, source in places:
        for path in sorted(folder.glob("python*")):
            if NAME.fullmatch(path.name) and os.access(path, os.X_OK) and path.is_file():
                yield path, source


def inspect(path: Path, source: str) -> Interpreter | None:
    """None: no CPython; a script that starts one is none, either."""
    try:
        facts = inspect_elf(path)
    except OSError:
        return None
    if facts is None or not facts["has_python"] or facts["interpreter"] is None:
        return None
    return Interpreter(
        path=path,
        version=facts["version"] or "unknown",
        is_free_threaded=facts["is_free_threaded"],
        is_shared=facts["libpython"] is not None,
        source=source,
        why_not=judge(str(path), [str(path)], os.environ).why_not,
    )
