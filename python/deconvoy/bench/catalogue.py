"""The scenarios: what each is, and what it takes by default."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from deconvoy import mixes
from deconvoy.bench.mixed import MIX
from deconvoy.bench.respond import SIMULATED, SOCKETS
from deconvoy.bench.scenario import (
    DESIGNS,
    Case,
    run_countdown,
    run_format,
    run_messaging,
    run_respond,
    run_sockets,
    run_tasks,
    run_workload,
)
from deconvoy.bench.summary import MODES
from deconvoy.errors import UserError


@dataclass(frozen=True)
class Scenario:
    """An experiment: its title, what it takes by default, and how to run it once."""

    name: str
    title: str
    run: Callable[[int, Case], dict[str, Any]]
    work: int
    quick_work: int
    workers: tuple[int, ...]
    # Of tasks: how they are run, and how large they are.
    modes: tuple[str | None, ...] = (None,)
    sizes: tuple[int | None, ...] = (None,)
    # What runs it if nothing is said: languages, by name; and every CPython found with these
    # policies (None: stock), or, without any, only this one and those without a GIL.
    languages: tuple[str, ...] = ()
    # The fewest workers that make sense.
    least: int = 1
    policies: tuple[str | None, ...] = ()


TASK_MODES = tuple(mode for mode in MODES if mode != "green")

# Languages that have programs of tasks.
COMPILED = ("c", "sbcl", "java", "go")

# Of a task, in microseconds.
GRAINS = (10, 30, 100, 300, 1000, 3000, 10_000, 30_000)


def _tasks(
    name: str,
    title: str,
    work: int,
    quick_work: int,
    modes: tuple[str, ...] = TASK_MODES[:-1],
    sizes: tuple[int | None, ...] = (None,),
    languages: tuple[str, ...] = (),
) -> Scenario:
    return Scenario(name, title, run_tasks, work, quick_work, (2,), modes, sizes, languages)


SCENARIO_LIST = (
    Scenario(
        "messaging",
        "echo of 8 KiB messages beside CPU-bound threads",
        run_messaging,
        work=1000,
        quick_work=200,
        workers=(0, 1),
        least=0,
        modes=("thread", "green"),
        languages=("c", "pypy", "ruby", "perl", "tcl", "sbcl", "java", "go"),
        policies=(None, "adaptive", "priority", "timeout"),
    ),
    Scenario(
        "countdown",
        "one loop, then split over threads",
        run_countdown,
        work=100_000_000,
        quick_work=20_000_000,
        workers=(2,),
        modes=("sequential", "thread", "fork"),
        languages=("c", "pypy", "ruby", "perl", "tcl", "sbcl", "java", "go", "node"),
        policies=(None, "adaptive", "priority", "timeout"),
    ),
    *(
        Scenario(
            name,
            title,
            run,
            work=0,
            quick_work=0,
            workers=(1000,),
            modes=("fork", "thread", "green", "future-thread", "future-fork"),
            languages=("c", "pypy", "perl", "ruby", "java", "go"),
            policies=(None,),
        )
        for name, title, run in (
            (SIMULATED, "requests that overlap", run_respond),
            (SOCKETS, "requests over connections that are all open at a time", run_sockets),
        )
    ),
    *(
        Scenario(
            f"format-{design}",
            "numbers to text, by a setting of the process",
            run_format,
            work=4_000_000,
            quick_work=400_000,
            workers=(1, 2),
            modes=("thread",),
            languages=("c", "tcl"),
        )
        for design in DESIGNS
    ),
    _tasks("fib", "a Fibonacci number, many times", 20_000, 1000, sizes=(16,), languages=COMPILED),
    _tasks("kmeans", "groups of images", 10, 3, languages=COMPILED),
    _tasks("kmeans-numpy", "groups of images, by NumPy", 10, 3),
    _tasks("knn", "nearest neighbours of images", 120, 40, languages=COMPILED),
    _tasks("knn-numpy", "nearest neighbours of images, by NumPy", 120, 40),
    _tasks("trees", "cyclic garbage", 300, 50, sizes=(11,), languages=COMPILED),
    _tasks("granularity", "the smallest task worth a future", 0, 0, TASK_MODES[1:-1], GRAINS),
    _tasks("granularity-c", "the same, without the GIL", 0, 0, TASK_MODES[1:-1], GRAINS),
)

# What is run if nothing is named.
DEFAULT = ("messaging", "countdown")


def scenario_named(name: str) -> Scenario:
    """The scenario of that name; `mix:NAME` or `mix:FILE` is a workload.

    Raises UserError when there is none, or the workload makes no sense.
    """
    for one in SCENARIO_LIST:
        if one.name == name:
            return one
    if name.startswith(MIX):
        mixes.load(name.removeprefix(MIX))
        return Scenario(name, "a workload", run_workload, work=0, quick_work=0, workers=(0,))
    have = ", ".join(one.name for one in SCENARIO_LIST)
    raise UserError(f"no scenario {name!r}; there are {have}, format, mix:NAME and mix:FILE")


def scenarios_named(names: Sequence[str]) -> list[Scenario]:
    """The scenarios of those names; `mix` alone is every workload that comes with the project,
    `format` each of its designs."""
    several = {
        MIX.removesuffix(":"): [f"{MIX}{mix}" for mix in mixes.names()],
        "format": [f"format-{design}" for design in DESIGNS],
    }
    found: dict[str, Scenario] = {}
    for name in names:
        found |= {each: scenario_named(each) for each in several.get(name, [name])}
    return list(found.values())
