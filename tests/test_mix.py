"""Workloads as data, in the simulator, in the lab and under CPython."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from commandline import Deconvoy
from deconvoy import mixes, search
from deconvoy._native import groups_json, replay, simulate
from deconvoy.bench import results
from deconvoy.bench.mixed import figures
from deconvoy.bench.simulated import costs_named
from deconvoy.traces import load

MINE = f"cpython{sys.version_info.major}.{sys.version_info.minor}"

# Each step that every runtime has; bounded, so that it does not depend on how fast anything is.
WORKLOAD = """
duration = "100s"
[[threads]]
name = "io"
count = 3
times = 40
loop = [
    { block = { uniform = ["10us", "200us"] } }, { compute = { exponential = "20us" } },
    { block = "0us" }, { sleep = "5us" }, { send = "task" }, { receive = "done" },
]
[[threads]]
name = "worker"
loop = [{ receive = "task" }, { compute = { lognormal = ["10us", 0.5] } }, { send = "done" }]
[[threads]]
name = "cpu"
count = 2
loop = [{ compute = { pareto = ["300us", 1.5] } }]
"""


def test_the_same_workload_runs_everywhere(deconvoy: Deconvoy, tmp_path: Path) -> None:
    path, out, traces = tmp_path / "mine.toml", tmp_path / "result.jsonl", tmp_path / "traces"
    path.write_text(WORKLOAD)
    runtimes = ["sim:adaptive@2", "lab:adaptive", "lab:timer:1ms", f"{MINE}+adaptive", MINE, "c"]
    named = [part for name in runtimes for part in ("--runtime", name)]
    done = deconvoy(*("bench", f"mix:{path}", *named, "--runs", "1", "-o", out, "--traces", traces))
    assert done.returncode == 0, done.stderr
    result = results.load(out)
    by_runtime = {run.runtime: run.values for run in result.runs}
    assert set(by_runtime) == set(runtimes) - {"c"}
    assert "no program of C's runs a workload" in json.dumps(result.skipped)
    # A run beside other work is repeated, and keeps its trace.
    assert len(list(traces.iterdir())) >= len(by_runtime)
    for name, values in by_runtime.items():
        groups = {group["name"]: group for group in values["groups"]}
        assert (groups["io"]["threads"], groups["cpu"]["threads"]) == (3, 2), name
        # One for each time that it comes back from a call: five a round.
        assert groups["io"]["acquires"] >= 3 * 40 * 5, name
        assert groups["worker"]["acquires"] >= 3 * 40, name
        assert 0 < values["kept"] <= 1.1 and 0 < values["jain"] <= 1, name
    for trace in traces.iterdir():
        if load(trace)["process"]["policy"] != "stock":
            replay(trace)


def test_a_workload_that_is_not_there_is_one_line(deconvoy: Deconvoy, tmp_path: Path) -> None:
    bad = tmp_path / "bad.toml"
    bad.write_text("threads = []")
    for name, says in [
        ("mix:nope", "no mix 'nope', and no such file"),
        (f"mix:{bad}", "a mix needs threads"),
        ("mixes", "no scenario 'mixes'; there are messaging, countdown, "),
    ]:
        done = deconvoy("bench", name, "--runtime", "lab:adaptive")
        assert done.returncode == 2
        assert len(done.stderr.splitlines()) == 1 and says in done.stderr, done.stderr


def test_a_lock_without_a_trace_is_skipped(deconvoy: Deconvoy, tmp_path: Path) -> None:
    out = tmp_path / "result.jsonl"
    done = deconvoy("bench", "mix:cpu-2", "--runtime", "lab:std", "--runs", "1", "-o", out)
    assert done.returncode == 2
    assert "nothing ran" in done.stderr, done.stderr
    assert "a lock without a policy leaves no trace" in done.stderr, done.stderr


@pytest.mark.parametrize("mix", mixes.names())
@pytest.mark.parametrize("policy", ["adaptive", "timeout:1ms"])
def test_every_workload_of_the_project_runs_in_the_lab(
    deconvoy: Deconvoy, tmp_path: Path, mix: str, policy: str
) -> None:
    """The anti-starvation set among them: each thread gets the lock, and what was decided replays.
    (How evenly they share it is measured, not tested: `deconvoy bench mix`.)"""
    short = tmp_path / "short.toml"
    lines = [line for line in mixes.load(mix).splitlines() if not line.startswith("duration")]
    short.write_text("\n".join(['duration = "300ms"', *lines]))
    out, traces = tmp_path / "result.jsonl", tmp_path / "traces"
    done = deconvoy(
        *("bench", f"mix:{short}", "--runtime", f"lab:{policy}", "--runs", "1"),
        *("-o", out, "--traces", traces),
    )
    assert done.returncode == 0, done.stderr
    (run,) = results.load(out).runs
    assert all(group["acquires"] > 0 for group in run.values["groups"])
    for trace in traces.iterdir():
        replay(trace)


@pytest.mark.parametrize(
    ("step", "more", "says"),
    [
        ('hog = "1us"', "", "no step 'hog' in Python"),
        ('native = "1us"', "", "no step 'native' in Python"),
        ('sleep = "1us"', "gil = false\n", "every thread of a CPython takes its lock"),
        ('sleep = "1us"', "priority = 3\n", "the priorities that the policy says"),
    ],
)
def test_what_python_cannot_do_is_skipped(
    deconvoy: Deconvoy, tmp_path: Path, step: str, more: str, says: str
) -> None:
    mix, out = tmp_path / "mine.toml", tmp_path / "result.jsonl"
    mix.write_text(f'[[threads]]\nname = "io"\n{more}times = 2\nloop = [{{ {step} }}]\n')
    done = deconvoy("bench", f"mix:{mix}", "--runtime", MINE, "--runs", "1", "-o", out)
    assert done.returncode == 2 and says in done.stderr, done.stderr


def test_a_workload_has_its_own_number_of_threads(deconvoy: Deconvoy) -> None:
    for option in ("--workers", "--work"):
        done = deconvoy("bench", "mix:web", option, "3")
        assert done.returncode == 2
        assert "says itself how many threads there are" in done.stderr


def test_a_workload_where_nobody_computes_is_judged(deconvoy: Deconvoy) -> None:
    done = deconvoy("policies", "search", "--mix", "pool", "--policy", "adaptive", "--json")
    (judged,) = json.loads(done.stdout)["judged"]
    assert judged["jain"] == 1.0 and 0 < judged["kept"] < 1


def test_a_hold_that_is_not_over_counts(deconvoy: Deconvoy, tmp_path: Path) -> None:
    mix, out = tmp_path / "one.toml", tmp_path / "result.jsonl"
    mix.write_text('duration = "1s"\n[[threads]]\nname = "cpu"\nloop = [{ compute = "1ms" }]\n')
    done = deconvoy("bench", f"mix:{mix}", "--runtime", "sim:adaptive@2", "--runs", "1", "-o", out)
    assert done.returncode == 0, done.stderr
    (run,) = results.load(out).runs
    assert run.values["kept"] > 0.99


@pytest.mark.parametrize("cores", [2, 8])
def test_the_trace_of_a_simulation_says_what_the_simulator_says(tmp_path: Path, cores: int) -> None:
    path = tmp_path / "sim.trace"
    outcome = json.loads(
        simulate("adaptive", cores, mixes.load("many-io"), costs_named("vm"), 1, path)
    )
    groups = {group["name"]: group for group in json.loads(groups_json(path, ["cpu", "io"]))}
    for told in outcome["groups"]:
        group = groups[told["name"]]
        assert group["acquires"] == told["acquired"]
        assert sum(group["held_ns"]) == pytest.approx(told["held_ns"], rel=0.001)
        assert group["longest_wait_ns"] == pytest.approx(told["longest_wait_ns"], rel=0.2)
    on = search.cases(["many-io"], [cores])
    kept = search.judge("adaptive", on, costs_named("vm"), 1).figures.kept
    found = figures(list(groups.values()))
    assert found["kept"] == pytest.approx(kept, rel=0.01)


def test_a_search_runs_its_winner_on_real_threads(deconvoy: Deconvoy, tmp_path: Path) -> None:
    mix = tmp_path / "short.toml"
    mix.write_text(WORKLOAD.replace("times = 40", "times = 10"))
    options = ("--population", "4", "--generations", "0", "--runs", "1", "--cores", "2")
    done = deconvoy("policies", "search", "--mix", mix, *options)
    assert done.returncode == 0, done.stderr
    assert "wait p99, sim" in done.stdout and "kept, CPython" in done.stdout, done.stdout
    made = results.load(next(tmp_path.glob("deconvoy-search-*.jsonl")))
    kinds = {run.runtime.partition(":")[0].partition("+")[0] for run in made.runs}
    assert kinds == {"sim", "lab", MINE}
