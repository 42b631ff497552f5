"""CPython's own regression tests say the same under the library as without it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from commandline import finished
from deconvoy import preload

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "ci/cpython-tests"
NO_TESTS = "no CPython from 3.8 on that ships its tests"

# Not a measure of anything: a hang must not hang the tests.
HANGS_AFTER_S = 900


def run(*arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, SCRIPT, "--library", preload.library(), *arguments]
    return finished(command, limit_s=HANGS_AFTER_S)


def test_no_method_fails_only_under_the_library(tmp_path: Path) -> None:
    done = run("--fast", "--json", tmp_path / "results.json")
    if done.returncode == 2 and NO_TESTS in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    tasks = json.loads((tmp_path / "results.json").read_text())["tasks"]
    assert sum(task["compared"] for task in tasks) > 100, done.stdout


def test_an_interpreter_that_is_none_is_refused(tmp_path: Path) -> None:
    done = run("-i", tmp_path / "python")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines() == [
        f"ci/cpython-tests: {tmp_path / 'python'} is no CPython that runs"
    ]
