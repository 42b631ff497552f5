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
from deconvoy.bench.mixed import MIX
from deconvoy.bench.plan import measure, order
from deconvoy.bench.process import Lacks, RunFailed
from deconvoy.bench.results import Result, Run
from deconvoy.bench.runtimes import Runtime
from deconvoy.bench.scenario import Case, scenario_named
from deconvoy.bench.simulated import SIM
from deconvoy.output import counted

# Between two words on how far it is, in seconds.
SAY_EVERY_S = 60.0


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


def new_name(stem: str) -> Path:
    """A name that no file here has."""
    names = itertools.chain([stem], (f"{stem}-{number}" for number in itertools.count(2)))
    return next(path for name in names if not (path := Path(f"{name}.json")).exists())


class Sayer:
    """Says how far a long series is where no bar can be drawn: after its first round, then now
    and then."""

    def __init__(self, total: int, first_round: int, console: Console, now_s: float) -> None:
        self._total = total
        self._first_round = first_round
        self._console = console
        self._begun_s = self._said_s = now_s

    def done(self, count: int, now_s: float) -> None:
        if self._console.is_terminal or not self._first_round <= count < self._total:
            return
        if count == self._first_round or now_s - self._said_s >= SAY_EVERY_S:
            self._said_s = now_s
            minutes = (now_s - self._begun_s) / count * (self._total - count) / 60
            said = f"{count} of {self._total} runs done, about {minutes:.0f} min to go"
            self._console.print(f"deconvoy: {said}")


def execute(result: Result, cases: list[Case], rounds: int, path: Path, console: Console) -> None:
    """Runs all cases `rounds` times and writes the result after every run."""
    total = rounds * len(cases)
    console.print(
        f"deconvoy: {counted(total, 'run')}, {rounds} of each of {counted(len(cases), 'case')}; "
        f"results go to {output.plain(str(path))} as they come",
        soft_wrap=True,
    )
    sayer = Sayer(total, len(cases), console, time.monotonic())
    progress = output.bar(console)
    failed: set[Case] = set()
    quiet = machine.Quiet(functools.partial(say_waits, console))
    with progress:
        task = progress.add_task("", total=total)
        for number, case in enumerate(order(cases, rounds, seed=result.settings["seed"])):
            name = f"{case.scenario} {case.runtime.name}"
            if case.mode is not None:
                name += f", {case.mode}" + f" x {case.workers}" * (case.workers > 1)
            elif not case.scenario.startswith(MIX):
                name += f", {case.workers} threads"
            progress.update(task, description=name)
            if case not in failed:
                try:
                    seed = result.settings["seed"] + number
                    run = functools.partial(scenario_named(case.scenario).run, seed)
                    with named_traces(case) as anew:
                        attempt = functools.partial(run_anew, run, anew)
                        result.runs.append(measure(case, number, attempt, quiet=quiet))
                except RunFailed as error:
                    failed.add(case)
                    told = result.skipped if isinstance(error, Lacks) else result.failed
                    told[name] = str(error)
                result.save(path)
            progress.advance(task)
            sayer.done(number + 1, time.monotonic())


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
    groups = run.values.get("groups", [])
    return sum(group["threads"] for group in groups)


def show_doubts(result: Result, console: Console) -> None:
    """Prints what a reader should know beside the numbers, what was skipped, and what failed."""
    real = [run for run in result.runs if not run.runtime.startswith(SIM)]
    found = machine.doubts(result.machine, max(map(runnable, real), default=0))
    unquiet = sum(not run.quiet for run in result.runs)
    if unquiet:
        found.append(f"{unquiet} of {len(result.runs)} runs were made beside other work")
    for doubt in found:
        console.print(f"note: {doubt}")
    for name, reason in result.skipped.items():
        console.print(f"skipped: {output.plain(name)}: {output.plain(reason)}")
    for name, reason in result.failed.items():
        console.print(f"failed: {output.plain(name)}: {output.plain(reason)}")
