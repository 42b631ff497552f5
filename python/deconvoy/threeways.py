"""Policies in the simulator, in the lab and under CPython, side by side: the same workloads, and
the same figures read from a trace of each."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from deconvoy.bench.mixed import MIX
from deconvoy.bench.results import Result
from deconvoy.bench.runtimes import LAB, choose
from deconvoy.bench.scenario import Case
from deconvoy.bench.series import execute, new_result
from deconvoy.bench.simulated import SIM
from deconvoy.bench.summary import Cell, Key, cells
from deconvoy.output import plain, short_policy, table, time_text


def runtimes(policy: str, costs: str) -> dict[str, str]:
    """The name of the runtime of each kind that has the policy; `costs`: of the simulator."""
    cores = len(os.sched_getaffinity(0))
    mine = f"cpython{sys.version_info.major}.{sys.version_info.minor}"
    at = f"@{cores}/{costs}" if costs else f"@{cores}"
    return {"sim": f"{SIM}{policy}{at}", "lab": f"{LAB}{policy}", "CPython": f"{mine}+{policy}"}


def check(policy: str, costs: str) -> None:
    """Raises UserError when there is no such runtime here."""
    choose(list(runtimes(policy, costs).values()))


def compare(
    policies: Sequence[str],
    mixes: Sequence[str],
    costs: str,
    rounds: int,
    seed: int,
    path: Path,
    console: Console,
) -> Result:
    """Runs the workloads under each policy, `rounds` times; keeps every number in `path`."""
    wanted = [name for policy in policies for name in runtimes(policy, costs).values()]
    chosen, skipped = choose(wanted)
    result = new_result(chosen, skipped, {"rounds": rounds, "seed": seed})
    cases = [Case(f"{MIX}{mix}", runtime, 0, 0) for mix in mixes for runtime in chosen]
    execute(result, cases, path, console)
    return result


def side_by_side(
    result: Result, policies: Sequence[str], mixes: Sequence[str], costs: str
) -> Table:
    """A line a workload and policy: what I/O-bound threads wait, and what the others keep."""
    kinds = list(runtimes("", costs))
    heads = [f"{what}, {kind}" for what in ("wait p99", "kept") for kind in kinds]
    title = "the same workloads in the simulator, in the lab and under CPython: medians over runs"
    listing = table("workload", "policy", *heads, title=title, numbers=tuple(heads))
    found = cells(result)

    def cell(mix: str, policy: str, kind: str) -> Cell | None:
        return found.get(Key(f"{MIX}{mix}", runtimes(policy, costs)[kind], 0, None))

    for mix in mixes:
        for policy in policies:
            each = [cell(mix, policy, kind) for kind in kinds]
            waits = [one.median("p99_ns") if one else None for one in each]
            kept = [one.median("kept") if one else None for one in each]
            listing.add_row(
                plain(mix) if policy == policies[0] else "",
                plain(short_policy(policy)),
                *("" if ns is None else time_text(ns) for ns in waits),
                *("" if share is None else f"{100 * share:.1f} %" for share in kept),
            )
    return listing
