"""`deconvoy bench`: run experiments, print their tables, keep every number."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from deconvoy import mixes, output
from deconvoy.bench import matrix, runtimes
from deconvoy.bench.catalogue import DEFAULT, TASK_MODES, Scenario, scenarios_named
from deconvoy.bench.comparison import compare
from deconvoy.bench.guard import Ended, guard, signals_as_interrupts
from deconvoy.bench.listing import show_what_there_is
from deconvoy.bench.mixed import MIX
from deconvoy.bench.results import Result, load
from deconvoy.bench.scenario import TASKS, Case
from deconvoy.bench.series import cases_from, execute, new_name, new_result
from deconvoy.bench.show import show, to_json
from deconvoy.bench.summary import MODES
from deconvoy.errors import UserError
from deconvoy.files import check_new
from deconvoy.verbs import Counts

if TYPE_CHECKING:
    from deconvoy.bench.cluster import Cluster


def make_folder(path: Path) -> None:
    try:
        path.mkdir(exist_ok=True)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None


EXAMPLES = """\b
Examples:
  deconvoy bench messaging --runtime 'cpython3.11*' --workers 0,1,2
  deconvoy bench countdown --runtime c --runtime ruby --runtime java --workers 2,4
  deconvoy bench respond --workers 1000,5000
  deconvoy bench kmeans trees --mode sequential --mode thread --mode future-fork
  deconvoy bench granularity granularity-c
  deconvoy bench format --runtime c --workers 1,2,4
  deconvoy bench mix:web --runtime lab:adaptive --runtime sim:timeout@8
  deconvoy bench mix:mine.toml --runtime cpython3.11+adaptive --traces traces
  deconvoy bench compare before.jsonl after.jsonl

Workloads: {mixes}; or a file. How one is written: see
scenarios/mix/README.md in the source.

\b
lab:LOCK is a toy virtual machine with real threads; LOCK is a policy (deconvoy policies), or,
without one, std, parking_lot, parking_lot_fair, pthread.
sim:POLICY@CORES simulates as many cores, at the costs that `deconvoy doctor --calibrate` has
measured on this machine; /COSTS takes others: vm (a virtual machine), server, 2010.

Results go to deconvoy-bench-*.jsonl in the current folder, or to -o. The exit status is 1 if a
program has failed."""


class WithCompare(click.Command):
    """`bench SCENARIO…`, and `bench compare A B`, which is another command."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        if args[:1] == [compare.name]:
            return compare.make_context(f"{info_name} {compare.name}", args[1:], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)


@click.command(
    cls=WithCompare,
    epilog=EXAMPLES.format(mixes=", ".join(f"{MIX}{name}" for name in mixes.names())),
)
@click.argument("names", nargs=-1, metavar="[SCENARIO]...")
@click.option(
    "--runtime",
    "patterns",
    multiple=True,
    metavar="NAME",
    help="What runs it: c, pypy, ruby, perl, tcl, sbcl, java, go, node; cpython3.11, "
    "'cpython*+adaptive', cpython3.11+timeout:interval=1ms, lab:timer:10ms, sim:adaptive@8, "
    "sim:mutex@8/2010; traced meanwhile, cpython3.11+adaptive+trace. Can be given again. "
    "Default: all languages found that have a program, every CPython stock and under each "
    "policy; for tasks and format, this Python and those without a GIL.",
)
@click.option("--workers", type=Counts(0, 100_000), help="As a list. Default: by scenario.")
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
    help="sys.setswitchinterval in every CPython; of Ruby the length of a slice, by "
    "Thread#priority= in 3.3, by RUBY_THREAD_TIMESLICE from 3.4 on.",
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
    help="messaging against the curve that --switch-interval draws, for 1, 2, 4, 8 threads.",
)
@click.option(
    "-o",
    "--output",
    "place",
    metavar="PATH",
    help="The result file (JSON lines), or a folder that it goes to.",
)
@click.option("--force", is_flag=True, help="Replace the result file if it exists.")
@click.option(
    "--resume",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Go on with a series that was interrupted; nothing measured is measured again.",
)
@click.option(
    "--cluster",
    metavar="ADDRESS",
    help="Run it on the workers of this Dask cluster, one run at a time on each machine.",
)
@click.option("--list", "listed", is_flag=True, help="Say what can be run here, and what not.")
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
    place: str | None,
    force: bool,
    resume: Path | None,
    cluster: str | None,
    listed: bool,
    as_json: bool,
) -> None:
    """Run experiments: messaging, countdown; overlapping requests: respond, respond-sockets; a
    setting that threads share: format; those made of tasks: fib, kmeans, knn, trees; how large a
    task must be: granularity; and any workload: mix:NAME, mix:FILE, or mix for all.

    Runs of what is compared are interleaved, in fresh processes, on a quiet machine as far as one
    can be had; medians are printed with 95 % intervals, and every single number is kept in a file.

    deconvoy bench compare A B says what became faster or slower from one result to another;
    deconvoy report RESULT draws one.
    """
    if listed:
        show_what_there_is(as_json)
        return
    if resume is not None:
        only_resume(click.get_current_context())
        again(resume, cluster, as_json)
        return
    if pareto and set(names) - {"messaging"}:
        raise UserError("--pareto is for messaging: deconvoy bench messaging --pareto")
    if not names:
        names = ("messaging",) if pareto else DEFAULT
    scenarios = scenarios_named(names)
    check_scenarios(scenarios, modes, sizes, workers, work)
    path = place_of(place, names)
    check_new(path, force)
    if traces is not None:
        if cluster is not None:
            raise UserError("--traces keeps them on this machine: leave it out with --cluster")
        make_folder(traces)
    with opened(cluster) as machines:
        there = None if machines is None else machines.available()
        wanted = list(patterns) or matrix.default_runtimes(scenarios, quick, pareto, there)
        chosen, skipped = runtimes.choose(wanted, traces, there)
        if not patterns:
            chosen = matrix.able(chosen, interval_s, skipped)
        asked = matrix.Asked(workers, work, interval_s, modes, sizes, quick, pareto)
        cases = matrix.cases_asked(scenarios, chosen, asked, named=bool(patterns))
        if interval_s is not None and not any(one.intervals_s for one in chosen):
            raise UserError("--switch-interval: no runtime here is a CPython or a Ruby")
        if not cases:
            why = "; ".join(f"{name}: {reason}" for name, reason in skipped.items())
            raise UserError(f"nothing to run: {why or 'no runtime fits'}")
        kept = None if traces is None else str(traces.absolute())
        settings = {"rounds": runs or (3 if quick else 5), "seed": seed, "pareto": pareto}
        result = new_result(chosen, skipped, settings | {"traces": kept})
        carry_out(result, cases, path, machines, as_json)


def place_of(said: str | None, names: tuple[str, ...]) -> Path:
    """The file of a result: as it was said, or a new name, in a folder if one was said."""
    place = None if said is None else Path(said)
    if said is not None and said.endswith("/") and not Path(said).is_dir():
        raise UserError(f"there is no folder {said}: make it first")
    if place is not None and not place.is_dir():
        return place
    stem = "-".join(dict.fromkeys(name.partition(":")[0] for name in names))
    return new_name(f"deconvoy-bench-{stem}-{time.strftime('%Y%m%d-%H%M%S')}", place)


def again(path: Path, cluster: str | None, as_json: bool) -> None:
    """Goes on with a series that was interrupted."""
    with opened(cluster) as machines:
        result = load(path)
        # What was missing or broken may be there by now.
        result.skipped.clear()
        result.failed.clear()
        there = None if machines is None else machines.available()
        carry_out(result, cases_from(result, path, there), path, machines, as_json)


@contextmanager
def opened(cluster: str | None) -> Iterator[Cluster | None]:
    """The cluster at an address; without one, this machine."""
    if cluster is None:
        yield None
        return
    from deconvoy.bench.cluster import Cluster

    with Cluster(cluster) as machines:
        yield machines


def check_scenarios(
    scenarios: list[Scenario],
    modes: tuple[str, ...],
    sizes: tuple[int, ...] | None,
    workers: tuple[int, ...] | None,
    work: int | None,
) -> None:
    """Raises UserError when they have not what is asked for."""
    if (workers or work) and any(one.name.startswith(MIX) for one in scenarios):
        raise UserError(
            "a workload says itself how many threads there are: no --workers, no --work"
        )
    for one in scenarios:
        known = TASK_MODES if one.name in TASKS else one.modes
        if unknown := [mode for mode in modes if mode not in known]:
            have = ", ".join(filter(None, known)) or "none"
            raise UserError(f"{one.name} has no mode {unknown[0]}; there are {have}")
        if workers and min(workers) < one.least:
            raise UserError(f"{one.name} needs a worker: --workers from {one.least} on")
    unsized = [one.name for one in scenarios if one.sizes == (None,)]
    if sizes and unsized:
        raise UserError(f"tasks of {unsized[0]} have one size: leave out --size, or the scenario")


def only_resume(context: click.Context) -> None:
    """Raises UserError when another option says what the file says already."""
    beside = ("resume", "as_json", "cluster")
    given = [
        name
        for name in context.params
        if name not in beside
        and context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
    ]
    if given:
        raise UserError(
            "--resume goes on with what its file says: give nothing with it but --json, --cluster"
        )


def carry_out(
    result: Result, cases: list[Case], path: Path, machines: Cluster | None, as_json: bool
) -> None:
    """Makes all runs, and prints what they came to. Ends with status 1 if a program has failed."""
    progress = output.console(stderr=True)
    was_there = path.exists()
    try:
        with signals_as_interrupts():
            if machines is None:
                execute(result, cases, path, progress)
            else:
                from deconvoy.bench.cluster import execute_on

                execute_on(machines, result, cases, path, progress)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from None
    except KeyboardInterrupt as interrupt:
        guard.end_all()
        tell_how_to_go_on(result, path, progress)
        if isinstance(interrupt, Ended):
            sys.exit(128 + interrupt.number)
        raise
    if not result.runs and not result.failed:
        if not was_there:
            path.unlink(missing_ok=True)
        why = "; ".join(f"{name}: {reason}" for name, reason in result.skipped.items())
        raise UserError(f"nothing ran: {why}")
    if as_json:
        click.echo(to_json(result))
    else:
        console = output.console()
        show(result, console)
        console.print(f"every number: {path}", soft_wrap=True)
    if result.failed:
        sys.exit(1)


def tell_how_to_go_on(result: Result, path: Path, console: Console) -> None:
    where = output.plain(str(path))
    said = f"deconvoy: interrupted; {output.counted(len(result.runs), 'run')} kept in {where}"
    console.print(f"{said}; to go on: deconvoy bench --resume {where}", soft_wrap=True)
