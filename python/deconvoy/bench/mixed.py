"""Workloads as data in every runtime: traced, and judged by what the trace says."""

from __future__ import annotations

import json
import os
import sys
import time
import tomllib
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from deconvoy import mixes, preload
from deconvoy._native import groups_json
from deconvoy.bench.process import RunFailed, run_to_end
from deconvoy.bench.runtimes import Runtime
from deconvoy.bench.stats import jain

# Before the name of a workload, or its file.
MIX = "mix:"

# Threads of this name only compute; of that one, they are I/O-bound.
CPU, IO = "cpu", "io"


def figures(groups: Sequence[dict[str, Any]]) -> dict[str, float]:
    """What a run comes to, from its groups (`name`, `start_ns`, `end_ns`, `held_ns` of each thread,
    `wait_p50_ns`, `wait_p99_ns`, `longest_wait_ns`).

    Yields `p50_ns` and `p99_ns` of the waits of I/O-bound threads, if there are any; `kept`, the
    share of the time that the others leave in which those that compute have the lock (without such,
    of all time in which anybody has it); `jain`, how evenly those share it; `longest_wait_ns`.
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
        return values | {"kept": used / elapsed_ns}
    held = cpu[0]["held_ns"]
    return values | {"kept": sum(held) / max(elapsed_ns - used, 1), "jain": jain(held)}


def run_mix(seed: int, case_runtime: Runtime, scenario: str) -> dict[str, Any]:
    """One run of a workload in a process of its own, or in the simulator.

    Raises RunFailed when the runtime cannot run it.
    """
    text = mixes.load(scenario.removeprefix(MIX))
    runtime = replace(case_runtime, traced=True)
    if runtime.python is not None and runtime.policy is None:
        # Nothing but the trace.
        runtime = replace(runtime, policy=preload.STOCK)
    folder = runtime.trace_folder()
    before = set(folder.iterdir())
    if runtime.simulation is not None:
        trace = folder / f"{os.getpid()}-{time.time_ns() // 1000}.trace"
        try:
            outcome = runtime.simulation.run(text, seed, trace)
        except (ValueError, OSError) as error:
            raise RunFailed(str(error)) from error
        values: dict[str, Any] = {"elapsed_s": outcome["elapsed_ns"] / 1e9}
    elif runtime.lab is not None:
        command = [sys.executable, "-m", "deconvoy.lab", "mix", "--lock", runtime.lab]
        command += ["--trace", str(folder), "--mix", text, "--seed", str(seed)]
        values = run_to_end(command, runtime.environment())
    elif runtime.python is not None:
        data = json.dumps(tomllib.loads(text))
        environment = runtime.environment()
        command = [*runtime.command("mix", "mix"), "--mix", data, "--seed", str(seed)]
        values = run_to_end(command, environment)
    else:
        raise RunFailed("no program of C's runs a workload")
    made = sorted(set(folder.iterdir()) - before)
    if not made:
        raise RunFailed(f"{' '.join(command)}: left no trace")
    names = {group["name"] for group in tomllib.loads(text)["threads"]}
    return values | traced(made[0], names)


def traced(path: Path, names: Collection[str]) -> dict[str, Any]:
    """What the trace of a run says of the groups of those names.

    Raises RunFailed when it is not whole.
    """
    try:
        groups = [one for one in json.loads(groups_json(path)) if one["name"] in names]
    except ValueError as error:
        raise RunFailed(str(error)) from error
    return {"groups": groups, **figures(groups)}
