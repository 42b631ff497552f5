"""Programs of scenarios in every language that this machine has, and how they are run."""

from __future__ import annotations

import functools
import io
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import schema
from commandline import Deconvoy
from deconvoy.bench import languages, machine, process, scenario, series
from deconvoy.bench.catalogue import scenario_named
from deconvoy.bench.languages import LANGUAGES, Installed
from deconvoy.bench.process import Lacks, RunFailed, Server, run_to_end
from deconvoy.bench.respond import RESPONSE, latencies_ns, respond_table
from deconvoy.bench.results import Result, Run, load
from deconvoy.bench.runtimes import SCENARIOS, Runtime
from deconvoy.bench.scenario import DESIGNS, Case
from rich.console import Console

# Of countdown and messaging: this Python, and all others.
PYTHON = Runtime("cpython", "", python=sys.executable)
NAMES = ["cpython", *(language.name for language in LANGUAGES)]

CLIENT = SCENARIOS / "messaging" / "client.py"


def runtime(name: str) -> Runtime:
    if name == "cpython":
        return PYTHON
    found, missing = languages.installed()
    if name in missing:
        pytest.skip(f"{name}: {missing[name]}")
    one = next(one for one in found.values() if one.language.name == name)
    return Runtime(one.name, one.full, installed=one)


@pytest.mark.parametrize("mode", ["sequential", "thread", "fork"])
@pytest.mark.parametrize("name", NAMES)
def test_each_counts_down(name: str, mode: str) -> None:
    one = runtime(name)
    if mode not in ("sequential", *one.modes):
        pytest.skip(f"{name} has no {mode}")
    workers = 1 if mode == "sequential" else 3
    options = ["--mode", mode, "--workers", str(workers), "--work", "30000"]
    said = run_to_end(one.command("countdown", "countdown") + options, one.environment())
    schema.check("run", schema.of_program(said))
    assert 0 < said["elapsed_s"] < process.TIME_LIMIT_S
    if mode == "fork":
        # Each child's pages count.
        assert said["minor_faults"] > 0


@pytest.mark.parametrize("mode", ["thread", "green"])
@pytest.mark.parametrize("name", NAMES)
def test_each_echoes_beside_what_computes(name: str, mode: str) -> None:
    one = runtime(name)
    if name == "node":
        pytest.skip("node has no server")
    if mode not in one.modes:
        pytest.skip(f"{name} has no {mode}")
    options = ["--mode", mode, "--workers", "2"]
    with Server(one.command("messaging", "server") + options, one.environment()) as server:
        before = server.mark()
        client = [sys.executable, str(CLIENT), "--port", str(server.port), "--limit", "60"]
        # More than one message, and one that takes several calls to be read.
        said = run_to_end([*client, "--work", "3", "--size", "300000"], one.environment())
        deadline = time.monotonic() + process.ANSWER_LIMIT_S
        while not all(now > then for now, then in counted(server, before[1])):
            assert time.monotonic() < deadline
        at, counts = server.mark()
        schema.check("counters", {"at": at, "counts": counts})
        usage = server.stop()
    schema.check("client", schema.of_program(said))
    assert len(said["latency_ns"]) == 3
    assert usage["user_s"] > 0


def counted(server: Server, before: list[int]) -> list[tuple[int, int]]:
    _, after = server.mark()
    assert len(after) == 2
    return list(zip(after, before, strict=True))


@pytest.mark.parametrize("mode", ["fork", "thread", "green", "future-thread", "future-fork"])
@pytest.mark.parametrize("name", NAMES)
def test_each_responds_to_requests_that_overlap(name: str, mode: str, tmp_path: Path) -> None:
    one = runtime(name)
    if name in ("tcl", "sbcl", "node"):
        pytest.skip(f"{name} has no program")
    if mode not in one.modes:
        pytest.skip(f"{name} has no {mode}")
    place = tmp_path / "responses"
    options = ["--mode", mode, "--workers", "30", "--wait", "0.05", "--output", str(place)]
    said = run_to_end(one.command("respond", "respond") + options, one.environment())
    schema.check("run", schema.of_program(said))
    # They overlap: one after the other would take 1.5 s at least, and each waits in full.
    assert said["elapsed_s"] >= 0.05
    assert all(late >= 0 for late in latencies_ns(place, 30, 0.05))


@pytest.mark.parametrize("mode", ["fork", "thread", "green", "future-thread", "future-fork"])
@pytest.mark.parametrize("name", NAMES)
def test_each_responds_over_connections_that_are_all_open(
    name: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scenario, "WAIT_S", 0.1)
    one = runtime(name)
    if name in ("tcl", "sbcl", "node"):
        pytest.skip(f"{name} has no program")
    if mode not in one.modes:
        pytest.skip(f"{name} has no {mode}")
    case = Case("respond-sockets", one, 30, 0, mode=mode)
    values = scenario_named("respond-sockets").run(1, case)
    told = ("elapsed_s", "open_s", "open", "latency_ns")
    schema.check("client", {name: values[name] for name in told})
    assert values["open"] == len(values["latency_ns"]) == 30
    assert all(late >= 0 for late in values["latency_ns"])
    assert values["elapsed_s"] >= 0.1


@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("name", ["cpython", "c", "tcl"])
def test_each_design_converts_the_same(name: str, design: str) -> None:
    one = runtime(name)
    run = functools.partial(scenario_named(f"format-{design}").run, 1)
    for workers in (1, 3):
        case = Case(f"format-{design}", one, workers, 3000, mode="thread")
        if (name, design) in (("cpython", "rwlock"), ("tcl", "epoch")):
            with pytest.raises(Lacks):
                run(case)
            continue
        values = run(case)
        schema.check("run", schema.of_program(values))
        assert values["result"] == sum(len(f"{i / 7:.12g}") for i in range(1, 3001))


def test_responses_are_looked_at(tmp_path: Path) -> None:
    place = tmp_path / "responses"

    def response(number: int, size: int = RESPONSE) -> str:
        head = f'<response id="{number}" begun_ns="1" ended_ns="12"><time>now</time><body>'
        return head + "." * (size - len(head) - 19) + "</body></response>\n"

    place.write_text(response(1) + response(0))
    assert latencies_ns(place, 2, 1e-9) == [10, 10]
    for text, says in (
        (response(0), "1 responses for 2 requests"),
        (response(0) * 2, "2 responses for 2 requests"),
        (response(0) + response(1, 500), "response 1 is none"),
        ("garbage", "response 0 is none: b'garbage'"),
    ):
        place.write_text(text)
        with pytest.raises(RunFailed, match=says):
            latencies_ns(place, 2, 0.0)


def test_a_table_of_requests() -> None:
    runs = [
        Run(
            name,
            "respond",
            1000,
            0,
            {"elapsed_s": took, "latency_ns": [5, 7]},
            0.0,
            True,
            mode=mode,
        )
        for name, mode, took in (("c", "fork", 2.0), ("c", "thread", 1.0), ("go1.26", "green", 1.0))
        for _ in range(3)
    ]
    result = Result([], 0.0, "0", {}, {}, {"c": "", "go1.26": ""}, runs=runs)
    said = io.StringIO()
    Console(file=said, width=200).print(respond_table(result))
    lines = [line.split() for line in said.getvalue().splitlines()]
    assert ["c", "fork", "1,000", "2.000", "[2.000,", "2.000]", "2.000x"] in [
        line[:7] for line in lines
    ]
    assert ["go1.26", "green", "1,000", "1.000", "[1.000,", "1.000]", "5.00"] in [
        line[:7] for line in lines
    ]


def test_what_a_program_lacks_is_told() -> None:
    perl = runtime("perl")
    command = perl.command("messaging", "server")
    with pytest.raises(RunFailed, match="green threads"):
        Server([*command, "--mode", "green"], perl.environment())
    node = runtime("node")
    with pytest.raises(RunFailed, match="no program in node"):
        node.command("messaging", "server")


def made(tmp_path: Path, name: str, text: str) -> Installed:
    """A command that says it is of this version, and a program beside it."""
    language = next(one for one in LANGUAGES if one.name == name)
    (tmp_path / language.file_name("program")).write_text(text)
    found, missing = languages.installed()
    if name in missing:
        pytest.skip(f"{name}: {missing[name]}")
    return next(one for one in found.values() if one.language.name == name)


def test_what_does_not_compile_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    one = made(tmp_path, "c", "int main(void) { return nothing; }\n")
    with pytest.raises(RunFailed, match=r"program\.c does not compile: .*nothing"):
        languages.command(one, tmp_path / "program.c")
    assert not list(tmp_path.glob("deconvoy/bench/*"))


def test_it_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    one = made(tmp_path, "c", "int main(void) { return 0; }\n")
    first = languages.command(one, tmp_path / "program.c")
    before = os.stat(first[0])
    languages._compiled.cache_clear()
    assert languages.command(one, tmp_path / "program.c") == first
    assert os.stat(first[0]) == before
    assert run(first) == 0


def run(command: list[str]) -> int:
    return subprocess.run(command, check=False).returncode


def python(text: str) -> list[str]:
    return [sys.executable, "-c", text]


def test_a_program_that_hangs_is_ended_with_what_it_has_begun(tmp_path: Path) -> None:
    left = tmp_path / "pid"
    hangs = f"""
import subprocess, sys, time
child = subprocess.Popen(["sleep", "1000"])
open({str(left)!r}, "w").write(str(child.pid))
print("begun", file=sys.stderr, flush=True)
time.sleep(1000)
"""
    with pytest.raises(RunFailed, match="took longer than 2 s; it said last: begun"):
        run_to_end(python(hangs), dict(os.environ), limit_s=2)
    pid = int(left.read_text())
    deadline = time.monotonic() + 60
    while is_alive(pid):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("print('garbage')", "printed 'garbage', not a JSON object"),
        ("raise ValueError('five', 5)", r"exit status 1; it said last: .*'five', 5"),
        ("import os; os.abort()", "ended by signal 6"),
        ("print(1); import sys; sys.exit(2)", "exit status 2; it said last: 1"),
        ('print(\'{"lacks": "all"}\'); import sys; sys.exit(3)', "^all$"),
    ],
)
def test_a_program_that_fails_is_told_with_its_last_words(text: str, says: str) -> None:
    with pytest.raises(RunFailed, match=says):
        run_to_end(python(text), dict(os.environ))


def test_a_server_that_fails_is_told() -> None:
    with pytest.raises(RunFailed, match=r"exit status 1; it said last: .*no port"):
        Server(python("raise SystemExit('no port')"), dict(os.environ))


def test_a_mode_that_a_scenario_has_not_is_told(deconvoy: Deconvoy) -> None:
    done = deconvoy("bench", "countdown", "--mode", "green")
    assert done.returncode == 2
    assert "countdown has no mode green; there are sequential, thread, fork" in done.stderr


def test_every_scenario_says_what_its_programs_are() -> None:
    for name in ("countdown", "messaging", "respond"):
        text = (SCENARIOS / name / "README.md").read_text()
        for mode in filter(None, scenario_named(name).modes):
            assert f"`{mode}`" in text


def test_what_has_failed_is_told_and_the_rest_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {
        "crashes": "import sys; print('oh', file=sys.stderr); sys.exit(5)",
        "garbage": "print('what')",
        "lacks": 'print(\'{"lacks": "forks"}\'); import sys; sys.exit(3)',
        "works": "print('{\"elapsed_s\": 1.5}')",
    }
    monkeypatch.setattr(
        Runtime, "command", lambda self, *_: [sys.executable, "-c", texts[self.name]]
    )
    monkeypatch.setattr(machine, "PATIENCE_S", 0.0)
    chosen = [Runtime(name, "", python=sys.executable) for name in texts]
    cases = [Case("countdown", one, 1, 1, mode="sequential") for one in chosen]
    result = series.new_result(chosen, {}, {"seed": 1, "rounds": 2})
    said = io.StringIO()
    series.execute(result, cases, tmp_path / "result.json", Console(file=said))
    assert load(tmp_path / "result.json") == result
    assert {run.runtime for run in result.runs} == {"works"} and len(result.runs) == 2
    assert list(result.skipped.values()) == ["forks"]
    failed = {name.split()[1]: why for name, why in result.failed.items()}
    assert failed["crashes,"].endswith("exit status 5; it said last: oh")
    assert failed["garbage,"].endswith("printed 'what', not a JSON object")
    series.show_doubts(result, Console(file=said, width=200))
    assert "failed: countdown crashes, sequential" in said.getvalue()


def test_a_failed_cell_ends_the_bench_with_status_1(
    deconvoy: Deconvoy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compiler that fails."""
    shadow = tmp_path / "bin"
    shadow.mkdir()
    (shadow / "cc").write_text('#!/bin/sh\n[ "$1" = -dumpversion ] && echo 99 || exit 1\n')
    (shadow / "cc").chmod(0o755)
    monkeypatch.setenv("PATH", str(shadow), prepend=os.pathsep)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    options = ["--runtime", "c", "--work", "1000", "--runs", "1", "--mode", "sequential"]
    done = deconvoy("bench", "countdown", *options)
    assert done.returncode == 1
    assert "countdown.c does not compile: it does not say why" in done.stdout.replace("\n", " ")
