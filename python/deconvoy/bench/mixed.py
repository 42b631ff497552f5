"""Workloads as data in every runtime: traced, and judged by what the trace says."""

from __future__ import annotations

import json
import os
import time
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from deconvoy import mixes, preload
from deconvoy._native import groups_json
from deconvoy.bench.process import Lacks, RunFailed, run_to_end
from deconvoy.bench.runtimes import Runtime
from deconvoy.bench.simulated import Simulation
from deconvoy.bench.stats import jain
from deconvoy.crashes import noted
from deconvoy.errors import UserError

# Before the name of a workload, or its file.
MIX = "mix:"

# Threads of this name only compute; of that one, they are I/O-bound.
CPU, IO = "cpu", "io"

# What CPython's program cannot do.
NOT_IN_PYTHON = ("hog", "native")


def kept(cpu_held_ns: float | None, used_ns: float, elapsed_ns: float) -> float:
    """The share of the time that the others, who had the lock for `used_ns`, leave in which those
    that compute have it; without such (None), the share of all time in which anybody has it."""
    if cpu_held_ns is None:
        return used_ns / elapsed_ns
    return cpu_held_ns / max(elapsed_ns - used_ns, 1)


def figures(groups: Sequence[dict[str, Any]]) -> dict[str, float]:
    """What a run comes to, from its groups (`name`, `start_ns`, `end_ns`, `held_ns` of each thread,
    `wait_p50_ns`, `wait_p99_ns`, `longest_wait_ns`).

    Yields `p50_ns` and `p99_ns` of the waits of I/O-bound threads, if there are any; `kept`;
    `jain`, how evenly those that compute share the lock; `longest_wait_ns`.
    """
    start_ns = min((one["start_ns"] for one in groups), default=0)
    elapsed_ns = max(max((one["end_ns"] for one in groups), default=0) - start_ns, 1)
    cpu = [one for one in groups if one["name"] == CPU]
    used = sum(sum(one["held_ns"]) for one in groups if one["name"] != CPU)
    values = {"longest_wait_ns": max((one["longest_wait_ns"] for one in groups), default=0)}
    for one in groups:
        if one["name"] == IO:
            values |= {"p50_ns": one["wait_p50_ns"], "p99_ns": one["wait_p99_ns"]}
    if not cpu:
        return values | {"kept": kept(None, used, elapsed_ns)}
    held = cpu[0]["held_ns"]
    return values | {"kept": kept(sum(held), used, elapsed_ns), "jain": jain(held)}


def run_mix(
    seed: int, case_runtime: Runtime, scenario: str, switch_interval_s: float | None = None
) -> dict[str, Any]:
    """One run of a workload in a process of its own, or in the simulator. `switch_interval_s`: of a
    CPython, in seconds.

    Raises RunFailed when the runtime cannot run it.
    """
    text = mixes.load(scenario.removeprefix(MIX))
    data = tomllib.loads(text)
    runtime = replace(case_runtime, traced=True)
    if runtime.python is not None and runtime.policy is None:
        # Nothing but the trace.
        runtime = replace(runtime, policy=preload.STOCK)
    folder = runtime.trace_folder()
    before = set(folder.iterdir())
    if runtime.simulation is not None:
        again = f"deconvoy bench {scenario} --runtime {runtime.name} --runs 1 --seed {seed}"
        values = simulate(runtime.simulation, text, seed, folder, again)
    else:
        command, given = command_of(runtime, scenario, data, seed, switch_interval_s)
        values = run_to_end(command, runtime.environment(), given or text)
    made = sorted(set(folder.iterdir()) - before)
    if not made:
        raise RunFailed("the run left no trace")
    return values | traced(made[0], data)


def simulate(
    simulation: Simulation, text: str, seed: int, folder: Path, again: str
) -> dict[str, Any]:
    """One run in the simulator, its trace in `folder`. `again`: the command that repeats it."""
    trace = folder / f"{os.getpid()}-{time.time_ns() // 1000}.trace"
    try:
        # If a rule of the simulator's is broken.
        with noted(f"to repeat it: {again}"):
            outcome = simulation.run(text, seed, trace, again)
    except (ValueError, OSError) as error:
        raise RunFailed(str(error)) from error
    return {"elapsed_s": outcome["elapsed_ns"] / 1e9}


def command_of(
    runtime: Runtime,
    scenario: str,
    data: dict[str, Any],
    seed: int,
    switch_interval_s: float | None,
) -> tuple[list[str], str]:
    """What runs a workload on real threads, and what it reads, if not the workload as it is.

    Raises Lacks if nothing runs it.
    """
    arguments = ["--mix", scenario.removeprefix(MIX), "--seed", str(seed)]
    if runtime.lab is not None:
        if not is_policy(runtime.lab):
            raise Lacks(f"{runtime.lab}: a lock without a policy leaves no trace")
        return [*runtime.command("mix", "mix"), *arguments], ""
    if runtime.python is None:
        raise Lacks("no program of C's runs a workload")
    if runtime.why_not is not None:
        raise Lacks(f"{runtime.why_not}, so that it cannot be traced")
    check_for_python(data)
    command = [*runtime.command("mix", "mix"), *arguments]
    if switch_interval_s is not None:
        command += ["--switch-interval", repr(switch_interval_s)]
    return command, json.dumps(data)


def is_policy(lock: str) -> bool:
    """Whether a lock of the lab's is one under a policy."""
    try:
        preload.check_policy(lock)
    except UserError:
        return False
    return True


def check_for_python(data: dict[str, Any]) -> None:
    """Raises Lacks when CPython's program cannot do what a workload says."""
    for group in data["threads"]:
        name = group["name"]
        if not group.get("gil", True):
            raise Lacks(f"{name}: every thread of a CPython takes its lock")
        if group.get("priority", 0):
            raise Lacks(f"{name}: CPython's threads have the priorities that the policy says")
        for step in group["loop"]:
            if kind := next((kind for kind in step if kind in NOT_IN_PYTHON), None):
                raise Lacks(f"{name}: no step {kind!r} in Python")


def traced(path: Path, data: dict[str, Any]) -> dict[str, Any]:
    """What the trace of a run of a workload says.

    Raises RunFailed when it does not have all of its threads, or not all that they did.
    """
    wanted = {one["name"]: one.get("count", 1) for one in data["threads"] if one.get("gil", True)}
    try:
        groups = json.loads(groups_json(path, list(wanted)))
    except ValueError as error:
        raise RunFailed(str(error)) from error
    found = {one["name"]: one["threads"] for one in groups}
    for name, count in wanted.items():
        if found.get(name, 0) != count:
            raise RunFailed(f"{path}: has {found.get(name, 0)} of {count} threads {name!r}")
    return {"groups": groups, **figures(groups)}
