"""The order of runs: interleaved, and repeated when they ran beside other work."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from deconvoy.bench.machine import QUIET_CORES, Watch, wait_for_quiet
from deconvoy.bench.results import Run
from deconvoy.bench.scenario import Case

# A run beside other work is repeated so often, then kept and marked.
REPEATS = 2


def order(cases: Sequence[Case], rounds: int, seed: int) -> Iterator[Case]:
    """Every case once in each round, each round in an order of its own: a machine that becomes
    slower or faster touches all cases alike, and no case always follows the same other one."""
    generator = random.Random(seed)
    for _ in range(rounds):
        shuffled = list(cases)
        generator.shuffle(shuffled)
        yield from shuffled


def measure(
    case: Case,
    number: int,
    execute: Callable[[Case], dict[str, Any]],
    watch: Callable[[], Watch] = Watch.start,
    quiet: Callable[[], bool] = wait_for_quiet,
) -> Run:
    """One run that counts: begun when the machine is quiet, repeated when it did not stay so."""
    if case.runtime.simulation is not None:
        return _run(case, number, execute(case), foreign=0.0, quiet=True)
    for attempt in range(REPEATS + 1):
        began_quiet = quiet()
        watching = watch()
        values = execute(case)
        foreign = watching.foreign_cores()
        stayed = began_quiet and foreign < QUIET_CORES
        # When quiet never came before the run, it will not come by running again.
        if stayed or not began_quiet or attempt == REPEATS:
            break
    return _run(case, number, values, foreign, stayed)


def _run(case: Case, number: int, values: dict[str, Any], foreign: float, quiet: bool) -> Run:
    return Run(
        runtime=case.runtime.name,
        scenario=case.scenario,
        workers=case.workers,
        order=number,
        values=values,
        foreign_cores=foreign,
        quiet=quiet,
        switch_interval_s=case.switch_interval_s,
        mode=case.mode,
        size=case.size,
        work=case.work,
    )
