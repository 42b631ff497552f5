"""One run of a program, and all of them in an interleaved order."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from deconvoy.bench.machine import QUIET_CORES, Watch, wait_for_quiet
from deconvoy.bench.plan import REPEATS
from deconvoy.bench.process import RunFailed
from deconvoy.bench.results import Run

from serving.environment import Environment
from serving.load import Load
from serving.programs import Program, Session

# The CPU-bound thread alone is counted for this long: two hundred switch intervals.
ALONE_S = 1.0

# Requests that warm up connections, caches and the policy; they are not counted.
WARM_UP_REQUESTS = 200

SATURATED = "saturated"

QUANTILES = ("p50_ns", "p90_ns", "p99_ns", "max_ns")


@dataclass(frozen=True)
class Settings:
    seconds: float
    rates: tuple[float, ...]
    connections: int
    policy: str


@dataclass(frozen=True)
class Case:
    """A cell of the table. Without a policy the program runs stock."""

    program: Program
    policy: str | None
    cpu_bound_threads: int

    def runtime(self, environment: Environment) -> str:
        """As `deconvoy bench` calls it: `cpython3.11+adaptive`."""
        return self.program.runtime(environment) + (f"+{self.policy}" if self.policy else "")


def cases(programs: Sequence[Program], policy: str) -> list[list[Case]]:
    """For each program: stock and ours, with one CPU-bound thread, and without as a base line."""
    return [
        [Case(program, under, threads) for threads in (1, 0) for under in (None, policy)]
        for program in programs
    ]


def order(groups: Sequence[Sequence[Case]], rounds: int, seed: int) -> Iterator[Case]:
    """Every case once a round. Those of one program follow one another, so that what is compared
    is measured within a minute; in each round in another order, so that none always comes first."""
    generator = random.Random(seed)
    for _ in range(rounds):
        for group in groups:
            shuffled = list(group)
            generator.shuffle(shuffled)
            yield from shuffled


def kind_of(rate: float) -> str:
    """What the values of a paced phase begin with: `paced50`."""
    return f"paced{rate:g}"


def values_of(kind: str, load: Load) -> dict[str, Any]:
    """What a phase goes into the result as, `kind` before each name."""
    values: dict[str, Any] = {f"{kind}_{name}": getattr(load, name) for name in QUANTILES}
    values[f"{kind}_requests"] = load.requests
    values[f"{kind}_per_s"] = load.per_second
    values[f"{kind}_wrong"] = load.wrong
    values[f"{kind}_unsent"] = load.unsent
    return values


def beside(
    session: Session, kind: str, run: Callable[[], Load], alone_per_s: float | None
) -> dict[str, Any]:
    """A phase of requests, and what the CPU-bound thread did meanwhile."""
    before = session.counted()
    load = run()
    after = session.counted()
    if load.wrong and load.wrong == load.requests:
        raise RunFailed(f"no request was answered: {load.first_error}")
    values = values_of(kind, load)
    if load.first_error:
        values[f"{kind}_first_error"] = load.first_error
    if alone_per_s is not None:
        per_s = after.per_second_since(before)
        values |= {f"{kind}_beside_per_s": per_s, f"{kind}_kept": per_s / alone_per_s}
    return values


def run_once(
    case: Case, environment: Environment, settings: Settings, address: str, log: Path
) -> dict[str, Any]:
    """One run: a fresh process, its thread alone, then beside paced requests, then saturated.

    Yields, for `paced50` and so on and for `saturated`, `…_p50_ns` to `…_max_ns`, `…_per_s` (right
    answers a second), `…_wrong`, `…_beside_per_s` (what the thread counts in a second), `…_kept`
    (that over what it counts alone); `alone_per_s`; and `status`, with which it ended at SIGTERM.

    Raises RunFailed when it does not start, answer or end.
    """
    before = []
    if case.policy:
        before = [sys.executable, "-m", "deconvoy", "run", "--policy", case.policy, "--"]
    values: dict[str, Any] = {}
    with case.program.started(
        environment,
        before,
        log,
        address=address,
        cpu_bound_threads=case.cpu_bound_threads,
        connections=settings.connections,
    ) as session:
        session.requests(WARM_UP_REQUESTS)
        alone_per_s = None
        if case.cpu_bound_threads:
            start = session.counted()
            time.sleep(ALONE_S)
            alone_per_s = values["alone_per_s"] = session.counted().per_second_since(start)
        for rate in settings.rates:
            paced = partial(session.paced, rate, settings.seconds)
            values |= beside(session, kind_of(rate), paced, alone_per_s)
        saturated = partial(session.saturated, settings.seconds)
        values |= beside(session, SATURATED, saturated, alone_per_s)
        values["status"] = session.end()
    return values


def run_quietly(
    case: Case, number: int, environment: Environment, execute: Callable[[], dict[str, Any]]
) -> Run:
    """A run that counts: begun when the machine is quiet, repeated when it did not stay so."""
    for attempt in range(REPEATS + 1):
        began_quiet = wait_for_quiet()
        watch = Watch.start()
        values = execute()
        foreign = watch.foreign_cores()
        stayed = began_quiet and foreign < QUIET_CORES
        # When quiet never came before the run, it will not come by running again.
        if stayed or not began_quiet or attempt == REPEATS:
            break
    return Run(
        runtime=case.runtime(environment),
        scenario=case.program.name,
        workers=case.cpu_bound_threads,
        order=number,
        values=values,
        foreign_cores=foreign,
        quiet=stayed,
    )
