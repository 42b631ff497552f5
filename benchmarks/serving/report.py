"""The tables of a result: one for each kind of load."""

from __future__ import annotations

import json

from deconvoy import output
from deconvoy.bench import machine
from deconvoy.bench.results import Result
from deconvoy.bench.stats import Estimate
from deconvoy.bench.summary import Cell, Key, cells
from rich.console import Console
from rich.table import Table

from serving.measure import SATURATED, kind_of

# A program that answers less of what is due than this is behind: the rest is the last few answers.
KEEPS_UP = 0.95


def _ns(found: Estimate) -> str:
    low, high = output.time_text(found.low), output.time_text(found.high)
    return f"{output.time_text(found.median)} [{low}, {high}]"


def _rate(found: Estimate | None, unit: float = 1.0, name: str = "") -> str:
    if found is None:
        return ""
    digits = 2 if found.median / unit < 10 else 0
    shown = [f"{value / unit:,.{digits}f}" for value in (found.median, found.low, found.high)]
    return f"{shown[0]}{name} [{shown[1]}, {shown[2]}]"


def _percent(found: Estimate | None) -> str:
    if found is None:
        return ""
    return f"{100 * found.median:.1f} % [{100 * found.low:.1f}, {100 * found.high:.1f}]"


def load_table(result: Result, kind: str, title: str) -> Table:
    """A line a cell. `over base`: times the p50, and the p99, of the same program stock and
    without a CPU-bound thread."""
    found = cells(result)
    numbers = ("CPU threads", "p50", "p99", "over base", "requests/s", "counts/s", "kept", "of")
    table = output.table("program", "GIL", *numbers, title=title, numbers=numbers)
    names = list(dict.fromkeys(run.scenario for run in result.runs))
    for key, cell in sorted(found.items(), key=lambda item: _place(item[0], names)):
        if f"{kind}_p50_ns" not in cell.estimates:
            continue
        stock = key.runtime.partition("+")[0]
        same = found.get(Key(key.scenario, stock, key.workers, None))
        base = found.get(Key(key.scenario, stock, 0, None))
        table.add_row(
            key.scenario,
            key.runtime.partition("+")[2] or "stock",
            str(key.workers),
            _ns(cell.estimates[f"{kind}_p50_ns"]),
            _ns(cell.estimates[f"{kind}_p99_ns"]),
            _over(cell, base, kind),
            _rate(cell.estimates.get(f"{kind}_per_s")),
            _rate(cell.estimates.get(f"{kind}_beside_per_s"), 1e6, " M"),
            _percent(cell.estimates.get(f"{kind}_kept")),
            _of(cell, same, f"{kind}_beside_per_s"),
        )
    return table


def _place(key: Key, names: list[str]) -> tuple[int, int, str]:
    # The base line first, then stock, then ours.
    return names.index(key.scenario), key.workers, key.runtime


def _over(cell: Cell, base: Cell | None, kind: str) -> str:
    if base is None or base is cell:
        return ""
    ratios = []
    for name in (f"{kind}_p50_ns", f"{kind}_p99_ns"):
        ours, theirs = cell.median(name), base.median(name)
        ratios.append(f"{ours / theirs:.2f}x" if ours and theirs else "-")
    return " / ".join(ratios)


def _of(cell: Cell, stock: Cell | None, name: str) -> str:
    ours, theirs = cell.median(name), stock and stock.median(name)
    if ours is None or not theirs or stock is cell:
        return ""
    return f"{100 * ours / theirs:.1f} % of stock's"


def doubts(result: Result) -> list[str]:
    """What a reader should know beside the numbers."""
    # The CPU-bound thread, the program's others, its database, and the load generator.
    found = machine.doubts(result.machine, 4)
    loud = [run for run in result.runs if not run.quiet]
    if loud:
        most = max(run.foreign_cores for run in loud)
        found.append(
            f"{len(loud)} of {len(result.runs)} runs were made beside other work, "
            f"which took up to {most:.1f} cores"
        )
    kinds = [kind_of(rate) for rate in result.settings["rates"]]
    for run in result.runs:
        name = f"{run.scenario}, {run.runtime}, {run.workers} CPU-bound threads"
        for kind in (*kinds, SATURATED):
            if wrong := run.values.get(f"{kind}_wrong"):
                what = run.values.get(f"{kind}_first_error")
                found.append(f"{name}: {wrong} {kind} requests failed, the first with {what}")
    return found + behind(result)


def behind(result: Result) -> list[str]:
    """The cells that do not answer as many requests as are due: a latency that grows without end
    says how long the phase was."""
    return [
        f"{key.scenario}, {key.runtime}, {key.workers} CPU-bound threads: answers "
        f"{answered:.0f} of {rate:g} requests a second; its latencies grow with --seconds"
        for key, cell in cells(result).items()
        for rate in result.settings["rates"]
        if (answered := cell.median(f"{kind_of(rate)}_per_s")) and answered < KEEPS_UP * rate
    ]


def show(result: Result, console: Console) -> None:
    titles = {
        kind_of(rate): f"paced: {rate:g} requests a second, latency from when each is due"
        for rate in result.settings["rates"]
    }
    connections = result.settings["connections"]
    titles[SATURATED] = "saturated: as fast as they are answered, "
    titles[SATURATED] += f"{connections} connections (wrk), 4 threads (clients)"
    for kind, title in titles.items():
        console.print(load_table(result, kind, f"{title}; medians, [95 % interval]"))
    for doubt in doubts(result):
        console.print(f"note: {output.plain(doubt)}")
    for name, reason in result.skipped.items():
        console.print(f"skipped: {output.plain(name)}: {output.plain(reason)}")


def to_json(result: Result) -> str:
    """The estimates of every cell, for a program."""
    listed = [cell.row() for cell in cells(result).values()]
    about = {"version": result.version, "machine": result.machine, "settings": result.settings}
    return json.dumps(
        about | {"doubts": doubts(result), "skipped": result.skipped, "cells": listed}
    )
