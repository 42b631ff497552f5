"""The experiments: how one run of each is made and what it yields."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deconvoy import mixes
from deconvoy.bench import simulated
from deconvoy.bench.mixed import MIX, run_mix
from deconvoy.bench.process import Lacks, RunFailed, Server, run_to_end, switches
from deconvoy.bench.respond import latencies_ns
from deconvoy.bench.runtimes import SCENARIOS, Runtime, companions
from deconvoy.bench.stats import jain
from deconvoy.bench.summary import MODES
from deconvoy.crashes import noted
from deconvoy.errors import UserError

# A server's threads run this long before anything is measured, in seconds.
WARM_UP_S = 0.2

# The CPU-bound threads alone are measured this long, in seconds: a hundred switch intervals.
ALONE_S = 0.5

# A client that waits for answers stops after as long as the simulator's.
LIMIT = ("--limit", str(simulated.LIMIT_S))

# A request of `respond` waits so long, in seconds.
WAIT_S = 1.0

# The first messages warm up the client, the connection and the policy; they are not counted.
WARM_UP_MESSAGES = 20


@dataclass(frozen=True)
class Case:
    """One cell of the matrix: run again and again, between the others."""

    scenario: str
    runtime: Runtime
    workers: int
    work: int
    switch_interval_s: float | None = None
    mode: str | None = None
    size: int | None = None


def _arguments(case: Case) -> list[str]:
    arguments = ["--workers", str(case.workers)]
    if case.switch_interval_s is not None:
        arguments += ["--switch-interval", repr(case.switch_interval_s)]
    return arguments


def _rates(before: dict[str, Any], after: dict[str, Any]) -> list[float]:
    elapsed = after["at"] - before["at"]
    pairs = zip(before["counts"], after["counts"], strict=True)
    return [(late - early) / elapsed for early, late in pairs]


def _simulate(run: Callable[..., dict[str, Any]], case: Case, seed: int) -> dict[str, Any]:
    runtime = case.runtime
    trace = None
    if runtime.traced:
        trace = runtime.trace_folder() / f"{os.getpid()}-{time.time_ns() // 1000}.trace"
    again = simulated.repeat_command(case.scenario, runtime.name, case.workers, case.work, seed)
    try:
        # If a rule of the simulator's is broken.
        with noted(f"to repeat it: {again}"):
            return run(runtime.simulation, case.workers, case.work, seed, trace, again)
    except (ValueError, OSError) as error:
        raise RunFailed(str(error)) from error


def run_messaging(seed: int, case: Case) -> dict[str, Any]:
    """One run of `messaging`: a fresh server, its threads alone, then with the client.

    Yields `elapsed_s`, `messages` (fewer than `work` if that took too long), `latency_ns` (a
    list), `alone_per_s` and `beside_per_s` (what all CPU-bound
    threads count in a second without and with the client), `kept` (the second over the first),
    `jain`, context switches of the server during the client's run, and the kernel's accounting.
    """
    if case.runtime.simulation is not None:
        return _simulate(simulated.messaging, case, seed)
    command = case.runtime.command("messaging", "server") + _arguments(case)
    if case.runtime.lab is None and case.mode is not None:
        command += ["--mode", case.mode]
    client = [sys.executable, str(SCENARIOS / "messaging" / "client.py")]
    values: dict[str, Any] = {}
    with Server(command, case.runtime.environment()) as server:
        port = ["--port", str(server.port)]
        run_to_end([*client, *port, "--work", str(WARM_UP_MESSAGES), *LIMIT], _plain())
        time.sleep(WARM_UP_S)
        if case.workers:
            alone = server.mark()
            time.sleep(ALONE_S)
            values["alone_per_s"] = sum(_rates(alone, server.mark()))
        before, switched = server.mark(), switches(server.pid)
        yielded = run_to_end([*client, *port, "--work", str(case.work), *LIMIT], _plain())
        after, switched_after = server.mark(), switches(server.pid)
        accounting = server.stop()
    if case.workers:
        rates = _rates(before, after)
        values["beside_per_s"] = sum(rates)
        values["kept"] = sum(rates) / values["alone_per_s"]
        values["jain"] = jain(rates)
    values["elapsed_s"] = yielded["elapsed_s"]
    values["latency_ns"] = yielded["latency_ns"]
    values["messages"], values["work"] = len(yielded["latency_ns"]), case.work
    voluntary, involuntary = (
        late - early for early, late in zip(switched, switched_after, strict=True)
    )
    return (
        accounting
        | values
        | {
            "voluntary_switches": voluntary,
            "involuntary_switches": involuntary,
        }
    )


def _plain() -> dict[str, str]:
    """The environment of the client: no policy under it."""
    return Runtime("client", "", python=sys.executable).environment()


def run_tasks(seed: int, case: Case) -> dict[str, Any]:
    """One run of a scenario that is made of tasks. Yields `elapsed_s`, `calls`, `cpu_s` (of all its
    processes, with the making of a pool), `gc_s` (where the runtime tells), its `result`, and the
    kernel's accounting.

    Raises Lacks where the runtime lacks the mode, or what the work needs.
    """
    program, option = TASKS[case.scenario]
    if case.runtime.python is None:
        raise Lacks("only CPython has a program for it")
    command = case.runtime.command(program, program) + _arguments(case) + option
    command += ["--mode", str(case.mode), "--work", str(case.work)]
    if case.size is not None:
        command += ["--size", str(case.size)]
    return _run_with_companions(command, case.runtime)


def run_countdown(seed: int, case: Case) -> dict[str, Any]:
    """One run of `countdown`; without a mode, one worker counts in the main thread. Yields
    `elapsed_s` and the kernel's accounting."""
    if case.runtime.simulation is not None:
        return _simulate(simulated.countdown, case, seed)
    mode = case.mode or ("sequential" if case.workers <= 1 else "thread")
    command = case.runtime.command("countdown", "countdown") + _arguments(case)
    command += ["--mode", mode, "--work", str(case.work)]
    return run_to_end(command, case.runtime.environment())


def run_respond(seed: int, case: Case) -> dict[str, Any]:
    """One run of `respond`. Yields `elapsed_s`, `latency_ns` (of every request, beyond what each
    waits), and the kernel's accounting."""
    with tempfile.TemporaryDirectory(prefix="deconvoy-respond-") as folder:
        responses = Path(folder, "responses")
        command = case.runtime.command("respond", "respond")
        command += ["--mode", str(case.mode), "--workers", str(case.workers)]
        command += ["--wait", repr(WAIT_S), "--output", str(responses)]
        values = _run_with_companions(command, case.runtime)
        return values | {"latency_ns": latencies_ns(responses, case.workers, WAIT_S)}


def _run_with_companions(command: list[str], runtime: Runtime) -> dict[str, Any]:
    environment = runtime.environment()
    if runtime.python is None:
        return run_to_end(command, environment)
    with companions(runtime.python) as folders:
        folders += environment.get("PYTHONPATH", "").split(os.pathsep)
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, folders))
        return run_to_end(command, environment)


def _run_mix(seed: int, case: Case) -> dict[str, Any]:
    """One run of a workload, see `mixed`."""
    return run_mix(seed, case.runtime, case.scenario, case.switch_interval_s)


@dataclass(frozen=True)
class Scenario:
    """An experiment: its title, what it takes by default, and how to run it once."""

    name: str
    title: str
    run: Callable[[int, Case], dict[str, Any]]
    work: int
    quick_work: int
    workers: tuple[int, ...]
    # Of tasks: how they are run, and how large they are.
    modes: tuple[str | None, ...] = (None,)
    sizes: tuple[int | None, ...] = (None,)


# Scenarios that are made of tasks: the program, and what it is told.
TASKS: dict[str, tuple[str, list[str]]] = {
    "fib": ("fib", []),
    "kmeans": ("kmeans", []),
    "kmeans-numpy": ("kmeans", ["--numpy", "1"]),
    "knn": ("knn", []),
    "knn-numpy": ("knn", ["--numpy", "1"]),
    "trees": ("trees", []),
    "granularity": ("granularity", []),
    "granularity-c": ("granularity", ["--digest", "1"]),
}

TASK_MODES = tuple(mode for mode in MODES if mode != "green")

# Of a task, in microseconds.
GRAINS = (10, 30, 100, 300, 1000, 3000, 10_000, 30_000)


def _tasks(
    name: str,
    title: str,
    work: int,
    quick_work: int,
    modes: tuple[str, ...] = TASK_MODES[:-1],
    sizes: tuple[int | None, ...] = (None,),
) -> Scenario:
    return Scenario(name, title, run_tasks, work, quick_work, (2,), modes, sizes)


SCENARIO_LIST = (
    Scenario(
        "messaging",
        "echo of 8 KiB messages beside CPU-bound threads",
        run_messaging,
        work=1000,
        quick_work=200,
        workers=(0, 1),
        modes=("thread", "green"),
    ),
    Scenario(
        "countdown",
        "one loop, then split over threads",
        run_countdown,
        work=100_000_000,
        quick_work=20_000_000,
        workers=(2,),
        modes=("sequential", "thread", "fork"),
    ),
    Scenario(
        "respond",
        "requests that overlap",
        run_respond,
        work=0,
        quick_work=0,
        workers=(1000,),
        modes=("fork", "thread", "green", "future-thread", "future-fork"),
    ),
    _tasks("fib", "a Fibonacci number, again and again", 20_000, 1000, sizes=(16,)),
    _tasks("kmeans", "groups of images", 10, 3),
    _tasks("kmeans-numpy", "groups of images, by NumPy", 10, 3),
    _tasks("knn", "nearest neighbours of images", 120, 40),
    _tasks("knn-numpy", "nearest neighbours of images, by NumPy", 120, 40),
    _tasks("trees", "cyclic garbage", 300, 50, sizes=(11,)),
    _tasks("granularity", "the smallest task worth a future", 0, 0, TASK_MODES[1:-1], GRAINS),
    _tasks("granularity-c", "the same, without the GIL", 0, 0, TASK_MODES[1:-1], GRAINS),
)

# What is run if nothing is named.
DEFAULT = ("messaging", "countdown")


def scenario_named(name: str) -> Scenario:
    """The scenario of that name; `mix:NAME` or `mix:FILE` is a workload.

    Raises UserError when there is none, or the workload makes no sense.
    """
    for one in SCENARIO_LIST:
        if one.name == name:
            return one
    if name.startswith(MIX):
        mixes.load(name.removeprefix(MIX))
        return Scenario(name, "a workload", _run_mix, work=0, quick_work=0, workers=(0,))
    have = ", ".join(one.name for one in SCENARIO_LIST)
    raise UserError(f"no scenario {name!r}; there are {have}, mix:NAME and mix:FILE")


def scenarios_named(names: Sequence[str]) -> list[Scenario]:
    """The scenarios of those names; `mix` alone is every workload that comes with the project."""
    found: dict[str, Scenario] = {}
    for name in names:
        of = [f"{MIX}{mix}" for mix in mixes.names()] if name == MIX.removesuffix(":") else [name]
        found |= {each: scenario_named(each) for each in of}
    return list(found.values())
