"""What the tests of `ci/cpython-tests` and `ci/ruby-tests` share."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from commandline import finished
from deconvoy import preload

CI = Path(__file__).resolve().parent.parent / "ci"

# Not a measure of anything: a hang must not hang the tests.
HANGS_AFTER_S = 900


def run(script: str, *arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, CI / script, "--library", preload.library(), *arguments]
    return finished(command, limit_s=HANGS_AFTER_S)


def require_no_regression(script: str, cannot: tuple[str, ...], folder: Path) -> None:
    """`cannot`: what it says, one of them, where there is nothing to test."""
    done = run(script, "--fast", "--json", folder / "results.json")
    if done.returncode == 2 and any(why in done.stderr for why in cannot):
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    tasks = json.loads((folder / "results.json").read_text())["tasks"]
    assert sum(task["compared"] for task in tasks) > 100, done.stdout
