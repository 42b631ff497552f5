"""Every hazard program with every chosen interpreter: stock, under each policy, and watched."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import harness
import pytest
from harness import Interpreter, Result, require_ok

# In this order: long ones first, so that the two workers end together.
PYTHON_PROGRAMS = [
    "interval",
    "fork_loop",
    "shortlived",
    "many",
    "fork_thread",
    "exits",
    "fork_exit",
    "spawn_storm",
    "signals",
    "hold",
    "subinterp",
    "fork_pool",
    "gilstate",
    "ends_waiting",
    "affinity",
    "alone",
    "exec_thread",
    "cancel",
]


@dataclass(frozen=True)
class Case:
    interpreter: Interpreter
    program: str
    mode: str
    arguments: tuple[str, ...] = ()

    def start(self, built: dict[str, Path]) -> Result:
        if self.program == "embed":
            assert self.interpreter.libpython is not None
            home = self.interpreter.home
            command = [str(built["embed"]), self.interpreter.libpython, *self.arguments]
            return harness.run(command, self.mode, PYTHONHOME=home, LD_LIBRARY_PATH=f"{home}/lib")
        path = str(harness.PROGRAMS / f"{self.program}.py")
        command = [self.interpreter.path, path, *self.arguments]
        return harness.run(command, self.mode, HAZARD_HELPER=str(built["helper"]))

    def __str__(self) -> str:
        words = [self.interpreter.name, self.program, *self.arguments, self.mode]
        return "-".join(words)


def python_cases() -> list[Case]:
    return [
        Case(interpreter, program, mode)
        for interpreter in harness.chosen()
        for program in PYTHON_PROGRAMS
        for mode in harness.modes(interpreter)
    ]


def embed_cases() -> list[Case]:
    ways = [("global", "20", "joined"), ("local", "2", "joined"), ("promoted", "2", "joined")]
    return [
        Case(interpreter, "embed", mode, way)
        for interpreter in harness.chosen()
        if interpreter.libpython
        # Stock itself crashes before 3.11 when daemon threads outlive an interpreter.
        for way in ways + ([("global", "5", "daemon")] if interpreter.version >= (3, 11) else [])
        for mode in harness.modes(interpreter)
    ]


def unserved_cases() -> list[Case]:
    return [
        Case(interpreter, "old", mode)
        for interpreter in harness.interpreters()
        if interpreter.version < (3, 8)
        for mode in ("adaptive", "watched")
    ]


@pytest.mark.parametrize("interpreter", harness.interpreters(), ids=lambda i: i.name)
def test_interpreter_is_covered(interpreter: Interpreter) -> None:
    """Says which interpreters were left out, and why."""
    if interpreter.served and interpreter not in harness.chosen():
        pytest.skip("not the system's, the oldest or the newest; HAZARDS_INTERPRETERS=all")
    if interpreter.served and interpreter.libpython is None:
        pytest.skip("embedding programs only: it has no shared libpython")


@pytest.mark.parametrize("case", python_cases() + embed_cases(), ids=str)
def test_hazard(case: Case, result: Result) -> None:
    require_ok(result)
    # A libpython that only its loader sees is not found, and so left alone: it works as it would.
    hidden = "local" in case.arguments
    if case.mode in ("watched", "traced") and not hidden:
        assert result.traces, "no trace was written"
        assert all(start.startswith(b"deconvoy") for start in result.traces)


@pytest.mark.parametrize("case", unserved_cases(), ids=str)
def test_old_python_is_left_alone(case: Case, result: Result) -> None:
    require_ok(result)
    assert not result.traces


@pytest.mark.parametrize("mode", ["adaptive", "watched", "traced"])
@pytest.mark.parametrize("program", ["plain", "plain_static"])
def test_other_program_is_left_alone(built: dict[str, Path], program: str, mode: str) -> None:
    result = harness.run([str(built[program])], mode)
    require_ok(result)
    assert not result.errors and not result.traces


def older_c_libraries() -> list[Path]:
    """Folders of a C library before 2.34, whose threads and `dlsym` are libraries of their own."""
    homes = {Path(each.path).parent.parent for each in harness.interpreters()}
    found = (home / "lib" / f"{os.uname().machine}-linux-gnu" for home in sorted(homes))
    return [folder for folder in found if (folder / "libpthread-2.31.so").exists()]


@pytest.mark.parametrize("mode", ["adaptive", "watched"])
def test_program_that_loads_no_libdl_is_left_alone(tmp_path: Path, mode: str) -> None:
    if not older_c_libraries():
        pytest.skip("no C library older than 2.34 found: ci/interpreters get 3.9")
    for folder in older_c_libraries():
        [loader] = folder.glob("ld-linux-*.so.*")
        libraries = [folder / "libc.so.6", folder / "libpthread.so.0", loader]
        options = ["-nodefaultlibs", "-Wl,--allow-shlib-undefined", *map(str, libraries)]
        program = harness.compile_c("plain.c", "plain_old", tmp_path, *options, libraries=())
        command = [str(loader), "--library-path", str(folder), str(program)]
        result = harness.run(command, mode)
        require_ok(result)
        assert not result.errors and not result.traces


@pytest.mark.parametrize("mode", ["adaptive", "watched"])
def test_shell_is_left_alone(mode: str) -> None:
    command = "ls / > /dev/null && (exit 5); echo $?; sleep 0.01 & wait; echo ok"
    for shell in ("bash", "sh"):
        if shutil.which(shell):
            result = harness.run([shell, "-c", command], mode)
            require_ok(result)
            assert result.out == "5\nok\n" and not result.errors and not result.traces


def test_set_uid_program_is_left_alone(built: dict[str, Path], tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("making a set-uid program of another user takes root")
    program = tmp_path / "secure"
    shutil.copy(built["secure"], program)
    result = harness.run([str(program)], "adaptive")
    assert result.out == "secure=0 loaded=1\n"
    os.chown(program, 65534, 65534)
    program.chmod(0o4755)
    result = harness.run([str(program)], "adaptive")
    if "secure=0" in result.out:
        pytest.skip("this file system ignores set-uid")
    assert result.out == "secure=1 loaded=0\n"


FREE_THREADED = [interpreter for interpreter in harness.interpreters() if interpreter.free_threaded]


@pytest.mark.parametrize("mode", harness.MODES)
@pytest.mark.parametrize("lock", ["0", "1"])
def test_free_threaded(built: dict[str, Path], lock: str, mode: str) -> None:
    if not FREE_THREADED:
        pytest.skip("no free-threaded build found")
    for interpreter in FREE_THREADED:
        path = str(harness.PROGRAMS / "freethreaded.py")
        arguments = ["gil"] if lock == "1" else []
        result = harness.run([interpreter.path, path, *arguments], mode, PYTHON_GIL=lock)
        require_ok(result)


def test_programs_are_all_run() -> None:
    there = {path.stem for path in harness.PROGRAMS.glob("*.py")}
    assert there == {*PYTHON_PROGRAMS, "hazard", "old", "freethreaded", "starvation", "convoy"}


def test_pytest_finds_an_interpreter() -> None:
    """Nothing above proves anything without one."""
    assert harness.chosen()
    assert subprocess.run([harness.chosen()[0].path, "-c", ""], check=True).returncode == 0
