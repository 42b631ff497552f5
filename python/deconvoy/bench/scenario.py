"""A cell of the matrix: how one run of it is made, and what that yields."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deconvoy import output
from deconvoy.bench import simulated
from deconvoy.bench.accounting import switches
from deconvoy.bench.mixed import MIX, run_mix
from deconvoy.bench.process import Lacks, RunFailed, Server, run_to_end
from deconvoy.bench.respond import latencies_ns
from deconvoy.bench.runtimes import SCENARIOS, Runtime, companions
from deconvoy.bench.stats import jain
from deconvoy.crashes import noted

# A server's threads run this long before anything is measured, in seconds.
WARM_UP_S = 0.2

# The CPU-bound threads alone are measured this long, in seconds: a hundred switch intervals.
ALONE_S = 0.5

# A client that waits for answers stops after as long as the simulator's.
LIMIT = ("--limit", str(simulated.LIMIT_S))

# One of thousands of requests, so long.
SOCKETS_LIMIT = ("--limit", "300")

# A request of `respond` waits so long, in seconds.
WAIT_S = 1.0

# The first messages warm up the client, the connection and the policy; they are not counted.
WARM_UP_MESSAGES = 20


# Scenarios that are made of tasks: the program, what it is told, and whether it wants the images.
TASKS: dict[str, tuple[str, list[str], bool]] = {
    "fib": ("fib", [], False),
    "kmeans": ("kmeans", [], True),
    "kmeans-numpy": ("kmeans", ["--numpy", "1"], True),
    "knn": ("knn", [], True),
    "knn-numpy": ("knn", ["--numpy", "1"], True),
    "trees": ("trees", [], False),
    "granularity": ("granularity", [], False),
    "granularity-c": ("granularity", ["--digest", "1"], False),
}

# Those that other languages have, too.
SHARED_TASKS = ("fib", "kmeans", "knn", "trees")

# Of `format`: how its setting is read.
DESIGNS = ("mutex", "rwlock", "epoch", "own")


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

    @property
    def kind(self) -> str:
        """What a runtime may lack, whatever the number of workers."""
        mode = "" if self.mode is None else f", {self.mode}"
        return f"{self.scenario} {self.runtime.name}{mode}"

    @property
    def name(self) -> str:
        """For a person, and for what is told of cells that have failed."""
        name = self.kind
        if self.mode is not None:
            name += f" x {self.workers}" * (self.mode != "sequential")
        elif not self.scenario.startswith(MIX):
            name += f", {self.workers} threads"
        if self.size is not None:
            name += f", size {self.size}"
        if self.switch_interval_s is not None:
            name += f", switch interval {output.time_text(self.switch_interval_s * 1e9)}"
        return name

    def data(self) -> dict[str, Any]:
        """As a result file has it; the runtime by its name."""
        return vars(self) | {"runtime": self.runtime.name}


def _arguments(case: Case) -> list[str]:
    return ["--workers", str(case.workers), *case.runtime.arguments(case.switch_interval_s)]


Mark = tuple[float, list[int]]


def _rates(before: Mark, after: Mark) -> list[float]:
    """What each thread counted in a second. Raises RunFailed when a server lost count."""
    elapsed = after[0] - before[0]
    if len(before[1]) != len(after[1]) or elapsed <= 0:
        raise RunFailed(f"a server that said {before}, then {after}")
    return [(late - early) / elapsed for early, late in zip(before[1], after[1], strict=True)]


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
    with Server(command, case.runtime.environment(case.switch_interval_s)) as server:
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
        if values["alone_per_s"]:
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
    program, option, has_images = TASKS[case.scenario]
    is_language = case.runtime.installed is not None
    if case.runtime.python is None and not is_language:
        raise Lacks("no program for it")
    if is_language and (option or program not in SHARED_TASKS):
        raise Lacks("only Python has a program for it")
    command = case.runtime.command(program, program, shared="tasks") + _arguments(case) + option
    command += ["--mode", str(case.mode), "--work", str(case.work)]
    if has_images:
        command += ["--data", str(SCENARIOS / "digits.csv")]
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
    return run_to_end(command, case.runtime.environment(case.switch_interval_s))


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


def run_sockets(seed: int, case: Case) -> dict[str, Any]:
    """One run of `respond` over sockets. Yields `open_s` (until all connections were open),
    `elapsed_s` (from the first request to the last response), `latency_ns` (of every request,
    beyond what each waits), and the kernel's accounting of the server."""
    command = case.runtime.command("respond", "respond")
    command += ["--mode", str(case.mode), "--workers", str(case.workers)]
    command += ["--wait", repr(WAIT_S), "--sockets", "1"]
    client = [sys.executable, str(SCENARIOS / "respond" / "client.py")]
    with _environment(case.runtime) as environment, Server(command, environment) as server:
        asked = ["--port", str(server.port), "--workers", str(case.workers), *SOCKETS_LIMIT]
        try:
            seen = run_to_end([*client, *asked], _plain())
        except RunFailed as error:
            raise server.blamed(error) from error
        values = server.finish()
    wait_ns = round(WAIT_S * 1e9)
    told = {name: seen[name] for name in ("open_s", "elapsed_s", "open")}
    return values | told | {"latency_ns": [late - wait_ns for late in seen["latency_ns"]]}


def run_format(seed: int, case: Case) -> dict[str, Any]:
    """One run of `format`. Yields `elapsed_s`, the `result` for checking, and the kernel's
    accounting."""
    if case.runtime.python is None and case.runtime.installed is None:
        raise Lacks("no program for it")
    command = case.runtime.command("format", "format") + _arguments(case)
    command += ["--mode", str(case.mode), "--work", str(case.work)]
    command += ["--design", case.scenario.partition("-")[2]]
    return _run_with_companions(command, case.runtime)


@contextmanager
def _environment(runtime: Runtime) -> Iterator[dict[str, str]]:
    """That of a run, in which a CPython finds deconvoy and what is installed beside it."""
    environment = runtime.environment()
    if runtime.python is None:
        yield environment
        return
    with companions(runtime.python) as folders:
        folders += environment.get("PYTHONPATH", "").split(os.pathsep)
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, folders))
        yield environment


def _run_with_companions(command: list[str], runtime: Runtime) -> dict[str, Any]:
    with _environment(runtime) as environment:
        return run_to_end(command, environment)


def run_workload(seed: int, case: Case) -> dict[str, Any]:
    """One run of a workload, see `mixed`."""
    return run_mix(seed, case.runtime, case.scenario, case.switch_interval_s)
