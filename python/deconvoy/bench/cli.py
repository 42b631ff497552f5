"""`deconvoy bench`: run experiments, print their tables, keep every number."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import click
from rich.console import Console

from deconvoy import mixes, output
from deconvoy.bench import respond, runtimes, table, tasks
from deconvoy.bench.languages import LANGUAGES
from deconvoy.bench.mixed import MIX
from deconvoy.bench.results import Result
from deconvoy.bench.scenario import (
    DEFAULT,
    TASK_MODES,
    TASKS,
    Case,
    Scenario,
    scenarios_named,
)
from deconvoy.bench.series import execute, new_name, new_result, show_doubts
from deconvoy.bench.summary import MODES, cells
from deconvoy.errors import UserError
from deconvoy.files import check_new
from deconvoy.verbs import Counts

KEYS = table.KEYS | {"respond": respond.KEY}

# The rival's curve: what `sys.setswitchinterval` buys; None is the default of 5 ms.
PARETO_INTERVALS_S = (None, 1e-3, 5e-4, 1e-4, 5e-5, 1e-5)
PARETO_WORKERS = (1, 2, 4, 8)


def _cases(
    scenario: Scenario,
    chosen: list[runtimes.Runtime],
    workers: tuple[int, ...],
    work: int,
    interval_s: float | None,
    modes: tuple[str, ...],
    sizes: tuple[int | None, ...],
) -> list[Case]:
    """`modes`: those that were asked for; None: the scenario's, as far as the runtime has them."""
    cases = [
        Case(
            scenario.name,
            runtime,
            1 if mode == "sequential" else count,
            work,
            interval_s if runtime.python else None,
            mode,
            size,
        )
        for runtime in chosen
        for size in sizes
        for mode in modes or modes_of(scenario, runtime)
        for count in workers
    ]
    return list(dict.fromkeys(cases))


def modes_of(scenario: Scenario, runtime: runtimes.Runtime) -> list[str | None]:
    """Those that are tried if nothing is said. Programs of tasks say themselves what they lack."""
    are_all = scenario.name in TASKS
    known = ("sequential", *runtime.modes)
    return [mode for mode in scenario.modes if are_all or mode is None or mode in known]


def _pareto_cases(chosen: list[runtimes.Runtime], work: int) -> list[Case]:
    """Each stock CPython at every switch interval, and everything else as it is."""
    cases = []
    for runtime in chosen:
        if runtime.python is None:
            continue
        intervals = PARETO_INTERVALS_S if runtime.policy is None else (None,)
        for count in PARETO_WORKERS:
            cases += [
                Case("messaging", runtime, count, work, interval, "thread")
                for interval in intervals
            ]
    return cases


def _default_runtimes(quick: bool, pareto: bool, with_policies: bool) -> list[str]:
    if quick or pareto:
        mine = f"cpython{sys.version_info.major}.{sys.version_info.minor}"
        mine += "t" * runtimes.is_free_threaded()
        if not with_policies:
            return [mine]
        policies = ("adaptive",) if quick else ("adaptive", "priority", "timeout")
        return [mine, *(f"{mine}+{policy}" for policy in policies)]
    policies = ("adaptive", "priority", "timeout")
    others = [language.name for language in LANGUAGES if language.name != "c"]
    return ["c", "cpython*", *(f"cpython*+{policy}" for policy in policies), *others]


def show(result: Result, console: Console, pareto: bool) -> None:
    """The tables of a result, with what a reader should doubt."""
    scenarios = {run.scenario for run in result.runs}
    if pareto:
        console.print(table.pareto_table(result))
    for scenario, made in (
        ("messaging", table.messaging_table),
        ("countdown", table.countdown_table),
        ("respond", respond.respond_table),
    ):
        if scenario in scenarios and not pareto:
            console.print(made(result))
            console.print(KEYS[scenario], style="dim", soft_wrap=True)
            console.print()
    for scenario in sorted(scenarios & TASKS.keys()):
        is_report = scenario.startswith("granularity")
        of_tasks = tasks.granularity_table if is_report else tasks.tasks_table
        console.print(of_tasks(result, scenario))
        console.print(tasks.KEYS[is_report], style="dim", soft_wrap=True)
        console.print()
    if any(scenario.startswith(MIX) for scenario in scenarios):
        console.print(table.mix_table(result))
        console.print(table.KEYS["mix"], style="dim", soft_wrap=True)
        console.print()
    for scenario in sorted(scenarios):
        known = respond.published_table() if scenario == "respond" else None
        known = known or tasks.published_table(scenario) or table.published_table(scenario)
        if known is not None and not pareto:
            console.print(known)
    show_doubts(result, console)


def make_folder(path: Path) -> None:
    try:
        path.mkdir(exist_ok=True)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None


def to_json(result: Result) -> str:
    """The estimates of every cell, for a program."""
    listed = [cell.row() for cell in cells(result).values()]
    about = {"version": result.version, "machine": result.machine}
    untold = {"skipped": result.skipped, "failed": result.failed}
    return json.dumps(about | untold | {"cells": listed})


EXAMPLES = """\b
Examples:
  deconvoy bench messaging --runtime 'cpython3.11*' --workers 0,1,2
  deconvoy bench countdown --runtime c --runtime ruby --runtime java --workers 2,4
  deconvoy bench respond --workers 1000,5000
  deconvoy bench kmeans trees --mode sequential --mode thread --mode future-fork
  deconvoy bench granularity granularity-c
  deconvoy bench mix:web --runtime lab:adaptive --runtime sim:timeout@8
  deconvoy bench mix:mine.toml --runtime cpython3.11+adaptive --traces traces

Workloads: {mixes}; or a file. How one is written: see
scenarios/mix/README.md in the source.

\b
lab:LOCK is a toy virtual machine with real threads; LOCK is a policy (deconvoy policies), or,
without one, std, parking_lot, parking_lot_fair, pthread.
sim:POLICY@CORES simulates as many cores, at the costs that `deconvoy doctor --calibrate` has
measured on this machine; /COSTS takes others: vm (a virtual machine), server, 2010.

Results go to deconvoy-bench-*.json in the current folder, or to -o. The exit status is 1 if a
program has failed."""


@click.command(epilog=EXAMPLES.format(mixes=", ".join(f"{MIX}{name}" for name in mixes.names())))
@click.argument("names", nargs=-1, metavar="[SCENARIO]...")
@click.option(
    "--runtime",
    "patterns",
    multiple=True,
    metavar="NAME",
    help="What runs it: c, pypy, ruby, perl, tcl, sbcl, java, go, node; cpython3.11, "
    "'cpython*+adaptive', cpython3.11+timeout:interval=1ms, lab:timer:10ms, sim:adaptive@8, "
    "sim:mutex@8/2010; traced meanwhile, cpython3.11+adaptive+trace. Can be given again. "
    "Default: all languages found, every CPython stock and under each policy; for tasks, this "
    "Python.",
)
@click.option("--workers", type=Counts(0, 1000), help="As a list. Default: by scenario.")
@click.option(
    "--mode",
    "modes",
    multiple=True,
    type=click.Choice(MODES),
    help="How the work is spread. Can be given again. Default: all that the scenario and the "
    "runtime have, but for future-dask.",
)
@click.option(
    "--size",
    "sizes",
    type=Counts(1, 10_000_000),
    help="Of a task, as a list: which number fib computes, how deep trees are, microseconds of "
    "granularity's.",
)
@click.option("--runs", type=click.IntRange(1, 1000), help="Runs of each cell. Default: 5.")
@click.option("--work", type=click.IntRange(1), help="Messages, or how far to count down.")
@click.option(
    "--switch-interval",
    "interval_s",
    type=click.FloatRange(1e-6, 1000),
    metavar="SECONDS",
    help="sys.setswitchinterval in every CPython.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**63),
    default=1,
    show_default=True,
    help="Of the order of runs, and of what is simulated.",
)
@click.option(
    "--traces",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Keep the traces of runtimes that end in +trace there, and of all workloads.",
)
@click.option(
    "--quick",
    is_flag=True,
    help="Less work, fewer runs, this Python only: a minute on a quiet machine.",
)
@click.option(
    "--pareto",
    is_flag=True,
    help="messaging against the curve that sys.setswitchinterval draws, for 1, 2, 4, 8 threads.",
)
@click.option(
    "-o", "--output", "place", type=click.Path(path_type=Path), help="The result file (JSON)."
)
@click.option("--force", is_flag=True, help="Replace the result file if it exists.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
def bench(
    names: tuple[str, ...],
    patterns: tuple[str, ...],
    workers: tuple[int, ...] | None,
    modes: tuple[str, ...],
    sizes: tuple[int, ...] | None,
    runs: int | None,
    work: int | None,
    interval_s: float | None,
    seed: int,
    traces: Path | None,
    quick: bool,
    pareto: bool,
    place: Path | None,
    force: bool,
    as_json: bool,
) -> None:
    """Run experiments: messaging, countdown; overlapping requests: respond; those made of tasks:
    fib, kmeans, knn, trees; how large a task must be: granularity; and any workload: mix:NAME,
    mix:FILE, or mix for all.

    Runs of what is compared are interleaved, in fresh processes, on a quiet machine as far as one
    can be had; medians are printed with 95 % intervals, and every single number is kept in a file.
    """
    if pareto and set(names) - {"messaging"}:
        raise UserError("--pareto is for messaging: deconvoy bench messaging --pareto")
    if not names:
        names = ("messaging",) if pareto else DEFAULT
    scenarios = scenarios_named(names)
    workloads = [one.name for one in scenarios if one.name.startswith(MIX)]
    if workloads and (workers or work):
        raise UserError(
            "a workload says itself how many threads there are: no --workers, no --work"
        )
    others = sorted({one.name for one in scenarios} - TASKS.keys())
    for one in scenarios:
        known = TASK_MODES if one.name in TASKS else one.modes
        if unknown := [mode for mode in modes if mode not in known]:
            have = ", ".join(filter(None, known)) or "none"
            raise UserError(f"{one.name} has no mode {unknown[0]}; there are {have}")
    unsized = [one.name for one in scenarios if one.sizes == (None,)]
    if sizes and unsized:
        raise UserError(f"tasks of {unsized[0]} have one size: leave out --size, or the scenario")
    stem = "-".join(dict.fromkeys(name.partition(":")[0] for name in names))
    path = place or new_name(f"deconvoy-bench-{stem}-{time.strftime('%Y%m%d-%H%M%S')}")
    check_new(path, force)
    if traces is not None:
        make_folder(traces)
    wanted = list(patterns) or _default_runtimes(quick or not others, pareto, bool(others))
    chosen, skipped = runtimes.choose(wanted, traces)
    cases: list[Case] = []
    for scenario in scenarios:
        amount = work or (scenario.quick_work if quick else scenario.work)
        if pareto:
            cases += _pareto_cases(chosen, amount)
        else:
            counts = workers or scenario.workers
            grains = sizes or scenario.sizes
            cases += _cases(scenario, chosen, counts, amount, interval_s, modes, grains)
    if interval_s is not None and not any(one.python for one in chosen):
        raise UserError("--switch-interval is of CPython's, and no runtime here is one")
    if not cases:
        why = "; ".join(f"{name}: {reason}" for name, reason in skipped.items())
        raise UserError(f"nothing to run: {why or 'no runtime fits'}")
    rounds = runs or (3 if quick else 5)
    settings = {"rounds": rounds, "seed": seed, "pareto": pareto}
    result = new_result(chosen, skipped, settings)
    progress = output.console(stderr=True)
    try:
        execute(result, cases, rounds, path, progress)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from None
    except KeyboardInterrupt:
        where = f"; {len(result.runs)} runs are in {output.plain(str(path))}" if result.runs else ""
        progress.print(f"deconvoy: interrupted{where}", soft_wrap=True)
        raise
    if not result.runs and not result.failed:
        why = "; ".join(f"{name}: {reason}" for name, reason in result.skipped.items())
        raise UserError(f"nothing ran: {why}")
    if as_json:
        click.echo(to_json(result))
    else:
        console = output.console()
        show(result, console, pareto)
        console.print(f"every number: {path}", soft_wrap=True)
    if result.failed:
        sys.exit(1)
