"""Scenarios that are made of tasks: their programs in every mode, and what their runs say."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import schema
from commandline import Deconvoy
from deconvoy.bench import languages, runtimes, tasks
from deconvoy.bench.catalogue import COMPILED, TASK_MODES
from deconvoy.bench.process import LACKS, Lacks, run_to_end
from deconvoy.bench.results import Result, Run, load
from deconvoy.bench.runtimes import SCENARIOS, Runtime, companions
from deconvoy.bench.scenario import SHARED_TASKS, TASKS
from deconvoy.bench.summary import cells
from rich.console import Console

# The least work, and what comes of it in every mode.
SMALL: dict[str, tuple[list[str], Any]] = {
    "fib": (["--work", "5", "--size", "7"], 65),
    "kmeans": (["--work", "1"], 2220380.0),
    "kmeans-numpy": (["--work", "1"], 2220380.0),
    "knn": (["--work", "4"], 1.0),
    "knn-numpy": (["--work", "4"], 1.0),
    "trees": (["--work", "4", "--size", "3", "--heap", "10"], 60),
    "granularity": (["--work", "4", "--size", "10"], 4),
    "granularity-c": (["--work", "4", "--size", "10"], 4),
}
VALUES = {"elapsed_s", "cpu_s", "calls", "gc_s", "result"}
# Those that bring a whole cluster are tried with one program.
PAIRS = [(name, mode) for name in TASKS for mode in TASK_MODES[:-1]] + [("fib", "future-dask")]


@pytest.mark.parametrize(("name", "mode"), PAIRS)
def test_a_program_says_what_it_should_in_every_mode(name: str, mode: str) -> None:
    if mode == "joblib":
        pytest.importorskip("joblib", reason="a mode of it")
    if mode == "future-dask":
        pytest.importorskip("distributed", reason="a mode of it")
    program, option, _ = TASKS[name]
    small, expected = SMALL[name]
    path = SCENARIOS / program / f"{program}.py"
    command = [sys.executable, str(path), *option, *small, "--mode", mode, "--workers", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    said = json.loads(done.stdout)
    more = {"sequential_s", "task_s"} if program == "granularity" else set()
    unknown = {"cpu_s"} if mode in ("joblib", "future-dask") else set()
    assert said.keys() == (VALUES | more) - unknown
    schema.check("run", said)
    assert said["result"] == pytest.approx(expected)
    assert said["elapsed_s"] > 0 and said.get("cpu_s", 1) > 0 and said["gc_s"] >= 0


@pytest.mark.parametrize("mode", ["sequential", "thread", "fork"])
@pytest.mark.parametrize("name", SHARED_TASKS)
@pytest.mark.parametrize("language", COMPILED)
def test_every_language_comes_to_the_same(language: str, name: str, mode: str) -> None:
    found, missing = languages.installed()
    if language in missing:
        pytest.skip(f"{language}: {missing[language]}")
    one = next(one for one in found.values() if one.language.name == language)
    if mode not in ("sequential", *one.language.modes):
        pytest.skip(f"{language} has no {mode}")
    runtime = Runtime(one.name, one.full, installed=one)
    small, expected = SMALL[name]
    options = ["--mode", mode, "--workers", "2", "--data", str(SCENARIOS / "digits.csv")]
    command = [*runtime.command(name, name, shared="tasks"), *small, *options]
    try:
        values = run_to_end(command, runtime.environment())
    except Lacks as lack:
        pytest.skip(str(lack))
    said = schema.of_program(values)
    schema.check("run", said)
    assert said.keys() == VALUES - ({"gc_s"} if language == "c" else set())
    assert said["result"] == pytest.approx(expected, rel=1e-9)


def test_every_program_has_a_readme_and_the_digits_are_whole() -> None:
    for program, _, _ in TASKS.values():
        assert (SCENARIOS / program / "README.md").exists()
    rows = (SCENARIOS / "digits.csv").read_text().split()
    assert len(rows) == 1797 and all(row.count(",") == 64 for row in rows)


def test_a_lack_is_told(tmp_path: Path) -> None:
    """An interpreter without NumPy."""
    path = SCENARIOS / "knn" / "knn.py"
    command = [sys.executable, "-S", "-I", str(path), "--numpy", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    schema.check("lacks", json.loads(done.stdout))
    assert json.loads(done.stdout) == {"lacks": "No module named 'numpy'"}


def test_programs_and_bench_agree_on_modes_and_on_what_a_missing_one_is() -> None:
    written = (SCENARIOS / "tasks.py").read_text()
    modes = re.search(r"^MODES = (\[.*\])$", written, re.MULTILINE)
    assert modes is not None and tuple(json.loads(modes.group(1))) == TASK_MODES
    assert f"\nLACKS = {LACKS}\n" in written


def test_what_an_interpreter_is_lent() -> None:
    with companions(sys.executable) as mine:
        assert any((Path(folder) / "numpy").exists() for folder in mine)
    with companions("/bin/sh") as others:
        assert [path.name for folder in others for path in Path(folder).iterdir()] == ["deconvoy"]


def test_an_interpreter_without_a_gil_is_not_lent_what_is_built_for_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runtimes, "version_of", lambda _: ((3, 14), True))
    monkeypatch.setattr(runtimes, "is_free_threaded", lambda: False)
    with companions("python3.14t") as folders:
        assert folders == []


def test_the_bench_runs_them_and_shows_them(deconvoy: Deconvoy, tmp_path: Path) -> None:
    common = ["bench", "fib", "granularity", "--work", "20", "--size", "5", "--runs", "2"]
    modes = ["--mode", "sequential", "--mode", "future-thread"]
    mine = f"cpython{sys.version_info.major}.{sys.version_info.minor}"
    done = deconvoy(*common, *modes, "--runtime", mine, "-o", "found.json")
    assert done.returncode == 0, done.stderr
    assert "fib: medians" in done.stdout and "future-thread" in done.stdout
    assert "the smallest task worth a future" in done.stdout
    assert "20,000 times, pool of 32 threads" in done.stdout.replace("\n", " ")
    runs = load(tmp_path / "found.json").runs
    keys = {(run.scenario, run.mode, run.size, run.workers) for run in runs}
    assert ("fib", "sequential", 5, 1) in keys and ("fib", "future-thread", 5, 2) in keys


def test_mistakes_are_told(deconvoy: Deconvoy) -> None:
    done = deconvoy("bench", "countdown", "--mode", "joblib")
    assert done.returncode == 2
    assert done.stderr == (
        "deconvoy: countdown has no mode joblib; there are sequential, thread, fork\n"
    )
    done = deconvoy("bench", "knn-numpy", "--runtime", "c", "--runs", "1")
    assert done.returncode == 2 and "only Python has a program for it" in done.stderr


def result(*rows: tuple[str, int, float, float]) -> Result:
    """Of granularity: mode, microseconds, elapsed and sequential seconds."""
    runs = [
        Run(
            runtime="cpython3.11",
            scenario="granularity",
            workers=2,
            order=0,
            values={
                "elapsed_s": elapsed,
                "sequential_s": sequential,
                "calls": 100,
                "task_s": sequential / 100,
            },
            foreign_cores=0.0,
            quiet=True,
            mode=mode,
            size=size,
        )
        for mode, size, elapsed, sequential in rows
    ]
    machine = {"cores_available": 2}
    return Result([], 0.0, "", machine, {}, {"cpython3.11": ""}, runs)


def test_the_smallest_task_is_that_from_which_on_all_are_worth_it() -> None:
    made = result(
        ("fork", 10, 0.011, 0.001),
        # By chance.
        ("fork", 100, 0.009, 0.01),
        ("fork", 300, 0.04, 0.03),
        ("fork", 1000, 0.09, 0.1),
        ("fork", 10000, 0.51, 1.0),
        ("thread", 10, 0.002, 0.001),
        ("thread", 10000, 1.1, 1.0),
    )
    assert max(tasks.speedup(cell) for cell in cells(made).values()) == pytest.approx(1 / 0.51)
    shown = io.StringIO()
    Console(file=shown, width=120).print(tasks.granularity_table(made, "granularity"))
    rows = [line.split() for line in shown.getvalue().splitlines()]
    lines = {row[1]: row for row in rows if row and row[0] == "cpython3.11"}
    assert lines["fork"][2:] == ["2", "105", "us", "1.00", "ms", "10.0", "ms", "1.96x"]
    assert lines["thread"][2:] == ["2", "10.0", "us", "-", "-", "0.91x"]
