"""The tables of a result, in the order in which they are shown."""

from __future__ import annotations

import json
from collections.abc import Iterator

from rich.console import Console
from rich.table import Table

from deconvoy import output
from deconvoy.bench import formats, respond, table, tasks
from deconvoy.bench.mixed import MIX
from deconvoy.bench.results import Result
from deconvoy.bench.scaling import PREDICTED, Law, scalings
from deconvoy.bench.scenario import TASKS
from deconvoy.bench.series import show_doubts
from deconvoy.bench.stats import Estimate
from deconvoy.bench.summary import cells

SCALING_KEY = f"""\
serial: the share of the work that must be done one after the other, by Amdahl's law. contention,
  coherency: by the universal scalability law (Gunther), the same share, and what each pair of
  workers costs one another; most at: beyond so many workers more are slower; -: never.
  {PREDICTED} predicted: the speed-up of so many workers over one, by each law: a prediction and no
  measurement. *: more workers than cores are among them, and what cores cannot give counts as
  serial, too."""


def tables(result: Result) -> Iterator[tuple[Table, str]]:
    """Each with what its heads mean, if that has to be said."""
    scenarios = {run.scenario for run in result.runs}
    if result.settings.get("pareto"):
        yield table.pareto_table(result), ""
        return
    for scenario, made, key in (
        ("messaging", table.messaging_table, table.KEYS["messaging"]),
        ("countdown", table.countdown_table, table.KEYS["countdown"]),
    ):
        if scenario in scenarios:
            yield made(result), key
    for scenario in (respond.SIMULATED, respond.SOCKETS):
        if scenario in scenarios:
            yield respond.respond_table(result, scenario), respond.KEY
    if any(scenario.startswith(f"{formats.SCENARIO}-") for scenario in scenarios):
        yield formats.format_table(result), formats.KEY
    for scenario in sorted(scenarios & TASKS.keys()):
        is_report = scenario.startswith("granularity")
        of_tasks = tasks.granularity_table if is_report else tasks.tasks_table
        yield of_tasks(result, scenario), tasks.KEYS[is_report]
    if any(scenario.startswith(MIX) for scenario in scenarios):
        yield table.mix_table(result), table.KEYS["mix"]
    scaling = scaling_table(result)
    if scaling.row_count:
        yield scaling, SCALING_KEY


# How much work the sources had done; of requests, how many.
OF_SOURCES = {"messaging": 1000, "countdown": 100_000_000}
REQUESTS_OF_SOURCE = 5000


def is_of_source(result: Result, scenario: str) -> bool:
    """Whether a result has the same work as the source of its scenario, as far as is known."""
    if scenario == respond.SIMULATED:
        return any(run.workers == REQUESTS_OF_SOURCE for run in result.runs)
    cases = result.settings.get("cases")
    if scenario not in OF_SOURCES or not isinstance(cases, list):
        return True
    wanted = {"scenario": scenario, "work": OF_SOURCES[scenario]}
    return any(isinstance(case, dict) and wanted.items() <= case.items() for case in cases)


def published_tables(result: Result) -> Iterator[Table]:
    """The figures of the sources for the same work."""
    if result.settings.get("pareto"):
        return
    for scenario in sorted({run.scenario for run in result.runs}):
        if not is_of_source(result, scenario):
            continue
        known = respond.published_table() if scenario == respond.SIMULATED else None
        known = known or tasks.published_table(scenario) or table.published_table(scenario)
        if known is not None:
            yield known


def show(result: Result, console: Console) -> None:
    """The tables of a result, with what a reader should doubt."""
    for made, key in tables(result):
        console.print(made)
        if key:
            console.print(key, style="dim", soft_wrap=True)
            console.print()
    for made in published_tables(result):
        console.print(made)
    show_doubts(result, console)


def scaling_table(result: Result) -> Table:
    """A line for each runtime, scenario and mode with three or more worker counts."""
    numbers = ("serial", "contention", "coherency", "most at")
    predicted = tuple(f"{PREDICTED} predicted, {law}" for law in ("Amdahl", "Gunther"))
    heads = ("scenario", "runtime", "mode", "workers", *numbers, *predicted)
    title = "how the time falls with workers: [95 % interval]"
    made = output.table(*heads, title=title, numbers=(*numbers, *predicted))
    for one in scalings(result):
        made.add_row(
            one.key.scenario + (f", size {one.key.size}" if one.key.size else ""),
            one.key.full_runtime,
            str(one.key.mode),
            ", ".join(map(str, one.counts)) + "*" * one.beyond,
            share(one.amdahl.contention),
            share(one.universal.contention),
            share(one.universal.coherency),
            "-" if one.universal.best is None else f"{max(one.universal.best, 1):,.0f}",
            predictions(one.amdahl) + "*" * one.beyond,
            predictions(one.universal) + "*" * one.beyond,
        )
    return made


def share(found: Estimate) -> str:
    interval = f" [{found.low:.3f}, {found.high:.3f}]" if found.has_interval else ""
    return f"{found.median:.3f}{interval}"


def predictions(law: Law) -> str:
    found = law.speedup
    interval = f" [{found.low:.2f}, {found.high:.2f}]" if found.has_interval else ""
    return f"{found.median:.2f}x{interval}"


def to_json(result: Result) -> str:
    """The estimates of every cell, for a program."""
    listed = [cell.row() for cell in cells(result).values()]
    about = {"version": result.version, "machine": result.machine, "machines": result.machines}
    untold = {"skipped": result.skipped, "failed": result.failed}
    return json.dumps(about | untold | {"cells": listed})
