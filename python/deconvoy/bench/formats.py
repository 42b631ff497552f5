"""`format`: which way of reading a setting of the process lets threads run at a time, and why."""

from __future__ import annotations

from dataclasses import replace

from rich.table import Table

from deconvoy import output
from deconvoy.bench.results import Result
from deconvoy.bench.summary import Cell, Key, cells
from deconvoy.bench.table import ratio, seconds

SCENARIO = "format"

# Of what so many cores could give: from here on threads run at a time.
AT_A_TIME = 0.75

# Of processor time, beside one thread: more than this is not chance.
MORE = 1.25

# Voluntary switches in a second beyond which threads sleep in turns.
SLEEPS_PER_S = 1000

KEY = """\
over one thread: the time for the same work; ~ the intervals overlap. voluntary: switches of threads
  that had to sleep. Whether threads run at a time: the time falls to at most 1 / 0.75 of what the
  cores could give; if not, why, from the processor time and the switches beside one thread's."""


def format_table(result: Result) -> Table:
    """A line a cell."""
    found = {key: cell for key, cell in cells(result).items() if is_format(key)}
    cores = result.machine.get("cores_available") or 1
    numbers = ("workers", "elapsed s", "over one thread", "user s", "system s", "voluntary")
    title = "format: medians, [95 % interval]"
    table = output.table("runtime", "design", *numbers, "threads", title=title, numbers=numbers)
    for key, cell in found.items():
        one = found.get(replace(key, workers=1))
        table.add_row(
            key.full_runtime,
            design_of(key),
            str(key.workers),
            seconds(cell.estimates.get("elapsed_s")),
            ratio(cell, one, "elapsed_s"),
            *(f"{cell.median(name) or 0:.2f}" for name in ("user_s", "system_s")),
            f"{cell.median('voluntary_switches') or 0:,.0f}",
            "" if one is None or one is cell else why(one, cell, cores),
        )
    return table


def is_format(key: Key) -> bool:
    return key.scenario.startswith(f"{SCENARIO}-")


def design_of(key: Key) -> str:
    return key.scenario.removeprefix(f"{SCENARIO}-")


def why(one: Cell, several: Cell, cores: int) -> str:
    """Whether the threads of a cell run at a time, beside one thread, and if not, why."""
    alone, together = values(one), values(several)
    could = min(several.key.workers, cores)
    if alone["elapsed_s"] >= AT_A_TIME * could * together["elapsed_s"]:
        return "run at a time"
    cpu = [each["user_s"] + each["system_s"] for each in (alone, together)]
    sleeps = together["voluntary_switches"] / together["elapsed_s"]
    system = f"system time {alone['system_s']:.2f} to {together['system_s']:.2f} s"
    switches = f"{together['voluntary_switches']:,.0f} voluntary switches"
    if sleeps > SLEEPS_PER_S:
        return f"serialise: they sleep until they are woken: {system}, {switches}"
    if cpu[1] > MORE * cpu[0]:
        more = f"processor time {cpu[0]:.2f} to {cpu[1]:.2f} s"
        return f"serialise: they wait awake, for memory or a lock: {more}, {switches}"
    return f"serialise: one runs at a time, and few have to be woken: {system}, {switches}"


def values(cell: Cell) -> dict[str, float]:
    names = ("elapsed_s", "user_s", "system_s", "voluntary_switches")
    return {name: cell.median(name) or 0.0 for name in names}
