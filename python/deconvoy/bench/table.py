"""Results as tables for a person, with the published figures beside ours."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib import resources
from typing import Any

from rich.table import Table

from deconvoy import output
from deconvoy.bench.mixed import MIX
from deconvoy.bench.results import Result
from deconvoy.bench.stats import Estimate
from deconvoy.bench.summary import Cell, Key, cells, dominated_by

# What the heads of a table mean, under it.
KEYS = {
    "messaging": """\
over alone: the total, of the total of the same server without CPU-bound threads; ~ the intervals
  overlap. total `7 of 100 in 60`: so many messages were answered in a minute, then it was stopped.
  p50, p99: of single messages. switches: of the server, by the kernel's count.
threads keep: what the CPU-bound threads count beside the client, of what they count without it.
  of stock's: of what they count beside it in stock CPython; speed differs from run to run, so it
  can be above 100 %. Jain: how even their shares are; 1: equal.""",
    "countdown": """\
over sequential: the time, of the time of one thread for the same count; ~ the intervals
  overlap. switches: of the program, and of its processes in mode fork.""",
    "mix": """\
wait: of the threads named io, for the lock, at each acquisition. keep: the share of the time that
  the others leave in which those named cpu have the lock; without such threads, of all time in
  which anybody has it. longest wait: of any thread. An empty cell: no threads of that name.""",
}


def published() -> dict[str, Any]:
    """The figures of the sources."""
    text = resources.files("deconvoy").joinpath("data/published.json").read_text()
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def seconds(found: Estimate | None) -> str:
    if found is None:
        return ""
    # Three digits or more of a short time.
    digits = 3 if found.median >= 0.1 else 4 if found.median >= 0.01 else 5
    if not found.has_interval:
        return f"{found.median:.{digits}f}"
    return f"{found.median:.{digits}f} [{found.low:.{digits}f}, {found.high:.{digits}f}]"


def _ns(cell: Cell, name: str) -> str:
    median = cell.median(name)
    return "" if median is None else output.time_text(median)


def percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f} %"


def ratio(cell: Cell, base: Cell | None, name: str) -> str:
    """How many times the median of `base`; a `~` in front when the intervals overlap."""
    if base is None or base is cell:
        return ""
    ours, theirs = cell.estimates[name], base.estimates[name]
    mark = "" if ours.differs(theirs) else "~"
    return f"{mark}{ours.median / theirs.median:.3f}x"


def switches(cell: Cell) -> str:
    kinds = ("voluntary_switches", "involuntary_switches")
    return f"{sum(cell.median(kind) or 0 for kind in kinds):,.0f}"


def _stock(key: Key) -> Key:
    return replace(key, runtime=key.runtime.partition("+")[0], switch_interval_s=None)


def messaging_table(result: Result) -> Table:
    """A line a cell; ratios are to the same runtime's server alone."""
    found = cells(result)
    numbers = (
        *("CPU threads", "total s", "over alone", "p50", "p99"),
        *("threads keep", "of stock's", "Jain", "switches"),
    )
    title = "messaging: medians, [95 % interval]"
    # Only where there are several.
    has_modes = len({key.mode for key in found if key.scenario == "messaging"}) > 1
    heads = ("mode",) * has_modes
    table = output.table("runtime", *heads, *numbers, title=title, numbers=numbers)
    for key, cell in found.items():
        if key.scenario != "messaging":
            continue
        alone = found.get(replace(key, workers=0))
        stock = found.get(_stock(key))
        beside, of = cell.median("beside_per_s"), stock and stock.median("beside_per_s")
        jain = cell.median("jain") if key.workers > 1 else None
        answered, asked = cell.median("messages"), cell.median("work")
        gave_up = answered is not None and asked is not None and answered < asked
        total = seconds(cell.estimates.get("elapsed_s"))
        if gave_up:
            total = f"{answered:.0f} of {asked:.0f} in {cell.median('elapsed_s'):.0f}"
        table.add_row(
            key.full_runtime,
            *(str(key.mode),) * has_modes,
            str(key.workers),
            total,
            "" if gave_up else ratio(cell, alone, "elapsed_s"),
            _ns(cell, "p50_ns") if answered != 0 else "",
            _ns(cell, "p99_ns") if answered != 0 else "",
            percent(cell.median("kept")),
            percent(beside / of) if beside and of and stock is not cell else "",
            "" if jain is None else f"{jain:.4f}",
            switches(cell),
        )
    return table


def countdown_table(result: Result) -> Table:
    found = cells(result)
    numbers = ("workers", "elapsed s", "over sequential", "user s", "switches")
    title = "countdown: medians, [95 % interval]"
    table = output.table("runtime", "mode", *numbers, title=title, numbers=numbers)
    for key, cell in found.items():
        if key.scenario != "countdown":
            continue
        one = found.get(replace(key, workers=1, mode="sequential"))
        table.add_row(
            key.full_runtime,
            str(key.mode),
            str(key.workers),
            seconds(cell.estimates.get("elapsed_s")),
            ratio(cell, one, "elapsed_s"),
            seconds(cell.estimates.get("user_s")),
            switches(cell),
        )
    return table


def mix_table(result: Result) -> Table:
    """A line a workload and runtime."""
    numbers = ("wait p50", "wait p99", "threads keep", "Jain", "longest wait")
    title = "workloads: medians over runs"
    table = output.table("workload", "runtime", *numbers, title=title, numbers=numbers)
    shown = ""
    for key, cell in cells(result).items():
        if not key.scenario.startswith(MIX):
            continue
        name = key.scenario.removeprefix(MIX)
        jain = cell.median("jain")
        table.add_row(
            "" if name == shown else output.plain(name),
            key.full_runtime,
            _ns(cell, "p50_ns"),
            _ns(cell, "p99_ns"),
            percent(cell.median("kept")),
            "" if jain is None else f"{jain:.4f}",
            _ns(cell, "longest_wait_ns"),
        )
        shown = name
    return table


def pareto_table(result: Result) -> Table:
    """Latency against what the CPU-bound threads keep, and which points another one dominates."""
    found = cells(result)
    title = "messaging: latency against CPU kept, and which point is better at both"
    numbers = ("CPU threads", "p50", "p99", "of stock's CPU")
    verdict = ("by p50 dominated by", "by p99 dominated by")
    table = output.table("point", *numbers, *verdict, title=title, numbers=numbers)
    points = sorted(found.values(), key=lambda cell: cell.key.workers)
    for cell in points:
        key = cell.key
        if not key.workers or "beside_per_s" not in cell.estimates:
            continue
        stock = found.get(_stock(key))
        beside, of = cell.median("beside_per_s"), stock and stock.median("beside_per_s")
        verdicts = []
        for latency in ("p50_ns", "p99_ns"):
            better = dominated_by(cell, points, latency)
            verdicts.append(better[0].key.full_runtime if better else "none: on the front")
        table.add_row(
            key.full_runtime,
            str(key.workers),
            _ns(cell, "p50_ns"),
            _ns(cell, "p99_ns"),
            percent(beside / of) if beside and of else "",
            *verdicts,
        )
    return table


def published_table(scenario: str) -> Table | None:
    """The figures of the source for the same work; seconds."""
    data = published().get(scenario)
    if data is None:
        return None
    rows = data["rows"]
    names = [name for name in rows[0] if name not in ("runtime", "os", "cores")]
    names += [name for row in rows for name in row if name not in ("runtime", "os", "cores")]
    names = list(dict.fromkeys(names))
    numbers = tuple(f"{name.replace('_', ' ')} s" for name in names)
    title = f"the same work, as published: {data['source']}"
    table = output.table("runtime", "on", *numbers, title=title, numbers=numbers)
    for row in rows:
        cores = row.get("cores")
        where = row["os"] + (f", {cores} core{'s' * (cores > 1)}" if cores else "")
        table.add_row(row["runtime"], where, *(str(row.get(name, "")) for name in names))
    return table
