"""A series of runs: in order, with progress, each result kept as it comes."""

from __future__ import annotations

import functools
import itertools
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from deconvoy import __version__, output
from deconvoy.bench import machine
from deconvoy.bench.catalogue import scenario_named
from deconvoy.bench.mixed import MIX
from deconvoy.bench.plan import measure, order
from deconvoy.bench.process import Lacks, RunFailed
from deconvoy.bench.results import SUFFIX, Journal, Result, Run
from deconvoy.bench.runtimes import Available, Runtime, choose
from deconvoy.bench.scenario import Case
from deconvoy.bench.simulated import SIM
from deconvoy.bench.store import identity
from deconvoy.errors import UserError
from deconvoy.output import counted

# Between two words on how far it is, and before the first one, in seconds.
SAY_EVERY_S = 60.0
FIRST_WORD_S = 10.0


def new_result(
    chosen: Sequence[Runtime], skipped: dict[str, str], settings: dict[str, Any]
) -> Result:
    """What is known before the first run; `settings` has the `rounds` and the `seed`."""
    return Result(
        command=sys.argv,
        created_unix_s=time.time(),
        deconvoy=__version__,
        machine=machine.describe(),
        settings=settings,
        runtimes={runtime.name: runtime.description for runtime in chosen},
        skipped=skipped,
    )


def cases_from(result: Result, path: Path, there: Available | None = None) -> list[Case]:
    """The cells that a series has been made of, to go on with it.

    Raises UserError when the file does not say, or a runtime is another one by now.
    """
    here = identity(machine.describe())
    if result.deconvoy != __version__:
        raise UserError(f"{path}: cannot go on: it was begun by deconvoy {result.deconvoy}")
    if there is None and (result.machines or identity(result.machine) != here):
        raise UserError(f"{path}: cannot go on: it was begun on another machine")
    try:
        told = [dict(case) for case in result.settings["cases"]]
        names = list(dict.fromkeys(case["runtime"] for case in told))
        traces = result.settings["traces"]
        chosen, _ = choose(names, traces and Path(traces), there)
        known = {one.name: one for one in chosen}
        for name in names:
            is_now = known[name].description if name in known else "no longer there"
            if is_now != result.runtimes[name]:
                was = result.runtimes[name]
                raise UserError(f"{path}: cannot go on: {name} was {was}, and is {is_now}")
        return [Case(**case | {"runtime": known[case["runtime"]]}) for case in told]
    except (KeyError, TypeError, ValueError):
        raise UserError(f"{path}: does not say what is left to run: run it anew") from None


def new_name(stem: str, folder: Path | None = None) -> Path:
    """A name that no file here, or in the folder, has."""
    place = folder or Path()
    names = itertools.chain([stem], (f"{stem}-{number}" for number in itertools.count(2)))
    return next(path for name in names if not (path := place / f"{name}{SUFFIX}").exists())


class Sayer:
    """Says how far a long series is where no bar can be drawn: soon, after its first round, then
    now and then."""

    def __init__(self, total: int, first_round: int, console: Console, now_s: float) -> None:
        self._total = total
        self._first_round = first_round
        self._console = console
        self._begun_s = self._said_s = now_s

    def done(self, count: int, now_s: float) -> None:
        if self._console.is_terminal or count >= self._total:
            return
        nothing_said = self._said_s == self._begun_s
        is_time = now_s - self._said_s >= (FIRST_WORD_S if nothing_said else SAY_EVERY_S)
        if count == self._first_round or is_time:
            self._said_s = now_s
            left_s = (now_s - self._begun_s) / count * (self._total - count)
            left = f"{left_s:.0f} s" if left_s < 120 else f"{left_s / 60:.0f} min"
            said = f"{count} of {self._total} runs done, about {left} to go"
            self._console.print(f"deconvoy: {said}")


def execute(result: Result, cases: list[Case], path: Path, console: Console) -> None:
    """Runs all cases as many times as the settings have `rounds`, but for those runs that the
    result has, and keeps each as it comes. Raises OSError when it cannot be kept."""
    result.settings["cases"] = [case.data() for case in cases]
    rounds: int = result.settings["rounds"]
    total = rounds * len(cases)
    left = list(still_to_run(result, cases))
    there = f"{total - len(left)} are there; " if len(left) < total else ""
    console.print(
        f"deconvoy: {counted(total, 'run')}, {rounds} of each of {counted(len(cases), 'case')}; "
        f"{there}results go to {output.plain(str(path))} as they come",
        soft_wrap=True,
    )
    sayer = Sayer(len(left), min(len(cases), len(left)), console, time.monotonic())
    quiet = machine.Quiet(functools.partial(say_waits, console))
    with Journal(result, path) as journal, output.bar(console) as progress:
        task = progress.add_task("", total=total, completed=total - len(left))
        for count, (number, case) in enumerate(left, 1):
            progress.update(task, description=case.name)
            if not is_told(result, case):
                journal.take(**run_once(case, number, result.settings["seed"] + number, quiet))
            progress.advance(task)
            sayer.done(count, time.monotonic())


def still_to_run(result: Result, cases: Sequence[Case]) -> Iterator[tuple[int, Case]]:
    """The places in the order of runs that have none yet, with their cases."""
    done = {run.order for run in result.runs}
    in_order = order(cases, result.settings["rounds"], result.settings["seed"])
    for number, case in enumerate(in_order):
        if number not in done and not is_told(result, case):
            yield number, case


def is_told(result: Result, case: Case) -> bool:
    """Whether it is known that a case cannot be run."""
    return case.kind in result.skipped or case.name in result.failed


def run_once(case: Case, number: int, seed: int, quiet: machine.Quiet) -> dict[str, Any]:
    """What is told of one run: `run=…`, `skipped=…` or `failed=…`, see `Journal`."""
    run = functools.partial(scenario_named(case.scenario).run, seed)
    try:
        check_mode(case)
        with named_traces(case) as anew:
            attempt = functools.partial(run_anew, run, anew)
            made = measure(case, number, attempt, quiet=quiet)
    except Lacks as error:
        return {"skipped": (case.kind, str(error))}
    except (RunFailed, OSError) as error:
        return {"failed": (case.name, str(error))}
    quiet.ran(made.quiet)
    return {"run": made}


def check_mode(case: Case) -> None:
    """Raises Lacks when a runtime spreads no work so. A CPython's programs say that themselves."""
    if case.mode in (None, "sequential", *case.runtime.modes) or case.runtime.python is not None:
        return
    raise Lacks(f"{case.runtime.name} has no mode {case.mode}")


def run_anew(
    run: Callable[[Case], dict[str, Any]], anew: Callable[[], None], case: Case
) -> dict[str, Any]:
    anew()
    return run(case)


def say_waits(console: Console, foreign_cores: float) -> None:
    console.print(
        f"deconvoy: other programs use {foreign_cores:.1f} cores: waits until they are done, "
        f"{machine.PATIENCE_S:.0f} s at most, then measures beside them and marks such runs"
    )


@contextmanager
def named_traces(case: Case) -> Iterator[Callable[[], None]]:
    """The traces that a run leaves, if they are to be kept, get its name in front. To be called
    before each attempt: those of the one before, which does not count, are gone then."""
    folder = case.runtime.traces
    before = set(folder.iterdir()) if folder is not None else set()

    def anew() -> None:
        if folder is not None:
            for trace in set(folder.iterdir()) - before:
                trace.unlink()

    yield anew
    if folder is not None:
        workload = Path(case.scenario).stem if case.scenario.startswith(MIX) else case.scenario
        name = re.sub(r"[^\w.+@,=-]", "-", f"{workload.removeprefix(MIX)}-{case.runtime.name}")
        for trace in set(folder.iterdir()) - before:
            trace.rename(trace.with_name(f"{name}-{trace.name}"))


def runnable(run: Run) -> int:
    """How many threads of a run may want a core at a time."""
    if run.scenario == "messaging":
        # The server, its threads, and the client.
        return run.workers + 2
    if run.scenario.startswith(MIX):
        return sum(group["threads"] for group in run.values.get("groups", []))
    # Of thousands of requests nearly all wait.
    return 0 if run.scenario.startswith("respond") else run.workers


def doubts_of(result: Result) -> list[str]:
    """What a reader should know beside the numbers, what was skipped, and what failed."""
    real = [run for run in result.runs if not run.runtime.startswith(SIM)]
    found = []
    for name, about in {"": result.machine, **result.machines}.items():
        mine = [run for run in real if run.machine == name]
        where = f"{name}: " if name else ""
        if about and (mine or not real):
            threads = max(map(runnable, mine), default=0)
            found += [f"note: {where}{doubt}" for doubt in machine.doubts(about, threads)]
    if result.unquiet:
        found.append(f"note: {result.unquiet} were made beside other work")
    missing = how_many_are_missing(result)
    if missing:
        found.append(
            f"note: {counted(missing, 'run')} of the series are missing: it can be resumed"
        )
    found += [f"skipped: {name}: {reason}" for name, reason in result.skipped.items()]
    return found + [f"failed: {name}: {reason}" for name, reason in result.failed.items()]


def how_many_are_missing(result: Result) -> int:
    """Runs of a series that was interrupted."""
    try:
        told = [dict(case) for case in result.settings["cases"]]
        cases = [Case(**case | {"runtime": Runtime(case["runtime"], "")}) for case in told]
        return sum(1 for _ in still_to_run(result, cases))
    except (KeyError, TypeError, ValueError):
        # Older ones, and pooled ones, do not say.
        return 0


def show_doubts(result: Result, console: Console) -> None:
    for line in doubts_of(result):
        console.print(output.plain(line), soft_wrap=True)
