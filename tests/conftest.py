"""What the tests of the command line share: how it is run, and on what."""

import os
import subprocess
from pathlib import Path

import pytest
from commandline import DECONVOY, Deconvoy, finished
from deconvoy.interpreters import Interpreter, find_interpreters


@pytest.fixture
def deconvoy(tmp_path: Path) -> Deconvoy:
    """Runs the command in an empty folder, and returns what it printed and its status."""

    def run(
        *arguments: str | Path, env: dict[str, str] | None = None, stdin: str = ""
    ) -> "subprocess.CompletedProcess[str]":
        command = [*DECONVOY, *map(str, arguments)]
        return finished(command, stdin, cwd=tmp_path, env=os.environ | (env or {}))

    return run


@pytest.fixture(scope="session")
def interpreters() -> list[Interpreter]:
    return find_interpreters()


@pytest.fixture(scope="session")
def python(interpreters: list[Interpreter]) -> str:
    """A CPython whose GIL can be served."""
    for interpreter in interpreters:
        if interpreter.can_be_served:
            return str(interpreter.path)
    pytest.skip(f"no CPython from 3.8 on with a GIL among {[str(i.path) for i in interpreters]}")
