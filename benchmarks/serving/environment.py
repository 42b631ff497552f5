"""The packages that the programs import: a virtual environment for each interpreter, in a cache."""

from __future__ import annotations

import fcntl
import hashlib
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from deconvoy.errors import UserError
from deconvoy.interpreters import brought, inspect

from serving.child import clean_environment, finished

LOCK = Path(__file__).parent.parent / "requirements.lock"
PIP_PATIENCE_S = 600.0
FACTS = "import platform, sys; print(platform.python_version()); print(sys.prefix, sys.executable)"


@dataclass(frozen=True)
class Environment:
    """A virtual environment that may not be there yet."""

    python: str
    version: str
    folder: Path
    lock: Path = LOCK

    @property
    def exists(self) -> bool:
        # Written last.
        return (self.folder / "complete").exists()

    def program(self, name: str) -> str:
        return str(self.folder / "bin" / name)

    @property
    def runtime(self) -> str:
        """`cpython3.11`, as `deconvoy bench` calls it."""
        return "cpython" + ".".join(self.version.split(".")[:2])


def environment_of(python: str, lock: Path = LOCK) -> Environment:
    """Where the environment of an interpreter with the packages of `lock` is, whether it is there
    or not.

    Raises UserError when it is no CPython whose GIL can be served.
    """
    path = Path(python)
    if not path.exists():
        raise UserError(f"{python}: no such interpreter")
    interpreter = inspect(path, "--python")
    if interpreter is None:
        raise UserError(f"{python}: not the executable of a CPython (a script that starts one?)")
    if interpreter.why_not:
        raise UserError(f"{python}: {interpreter.why_not}")
    done = subprocess.run(
        [python, "-c", FACTS], env=clean_environment(), capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise UserError(f"{python}: does not run: {(done.stderr.splitlines() or [''])[-1]}")
    version, where = done.stdout.splitlines()
    digest = hashlib.sha256(where.encode() + lock.read_bytes()).hexdigest()[:12]
    folder = brought().absolute() / "servers" / f"{version}-{digest}"
    return Environment(python, version, folder, lock)


def bring(environment: Environment) -> None:
    """Makes the environment unless it is there.

    Raises UserError when pip cannot: no network, or no package for this interpreter.
    """
    if environment.exists:
        return
    folder = environment.folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if environment.exists:
            return
        print(f"making {folder} from {environment.lock.name}", file=sys.stderr, flush=True)
        _run([environment.python, "-m", "venv", "--clear", str(folder)])
        pip = [environment.program("python"), "-m", "pip", "--disable-pip-version-check"]
        # A build from source would be another program on each machine.
        _run([*pip, "install", "--quiet", "--only-binary", ":all:", "-r", str(environment.lock)])
        (folder / "complete").touch()


def _run(command: list[str]) -> None:
    # No PIP_… is taken away: an index of the user's own is how pip works here.
    done = finished(command, PIP_PATIENCE_S)
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if "ERROR" in line] or [done.stdout]
        raise UserError(f"`{' '.join(command[:4])} …`: {lines[0].strip()}")
