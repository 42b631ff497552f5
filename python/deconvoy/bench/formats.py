"""`format`: which way of reading a setting of the process lets threads run at a time, and why."""

from __future__ import annotations

from dataclasses import replace

from rich.table import Table

from deconvoy import output
from deconvoy.bench.results import Result
from deconvoy.bench.summary import Cell, Key, cells
from deconvoy.bench.table import ratio, seconds

SCENARIO = "format"

# Of what the other cores could give: from here on threads run at a time, up to there they do not.
AT_A_TIME, IN_TURN = 0.5, 0.25

# Of processor time, beside one thread: more than this is not chance.
MORE = 1.25

# Voluntary switches in a second beyond which threads sleep in turns.
SLEEPS_PER_S = 1000

KEY = """\
over one thread, over own: the time for the same work, of that of one thread, and of that of the
  design own; ~ the intervals overlap. voluntary: switches of threads that had to sleep. threads:
  whether they run at a time (at least half of what the other cores could give is had), in part, or
  serialise (at most a quarter), and why, by processor time and switches."""


def format_table(result: Result) -> Table:
    """A line a cell."""
    found = {key: cell for key, cell in cells(result).items() if is_format(key)}
    numbers = (
        "workers",
        "elapsed s",
        "over one thread",
        "over own",
        "user s",
        "system s",
        "voluntary",
    )
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
            ratio(cell, found.get(replace(key, scenario=f"{SCENARIO}-own")), "elapsed_s"),
            *(f"{cell.median(name) or 0:.2f}" for name in ("user_s", "system_s")),
            f"{cell.median('voluntary_switches') or 0:,.0f}",
            "" if one is None or one is cell else why(one, cell, result.cores(key.machine)),
        )
    return table


def is_format(key: Key) -> bool:
    return key.scenario.startswith(f"{SCENARIO}-")


def design_of(key: Key) -> str:
    return key.scenario.removeprefix(f"{SCENARIO}-")


def why(one: Cell, several: Cell, cores: int) -> str:
    """Whether the threads of a cell run at a time, beside one thread, and if not, why."""
    alone, together = values(one), values(several)
    others = min(several.key.workers, cores) - 1
    if one.unquiet or several.unquiet:
        return "not known: other programs ran beside it"
    if others < 1:
        return "one core: nothing can be told"
    gained = (alone["elapsed_s"] / together["elapsed_s"] - 1) / others
    if gained >= AT_A_TIME:
        return "run at a time"
    verdict = "serialise" if gained <= IN_TURN else "in part"
    cpu = [each["user_s"] + each["system_s"] for each in (alone, together)]
    switches = f"{together['voluntary_switches']:,.0f} voluntary switches"
    if together["voluntary_switches"] / together["elapsed_s"] > SLEEPS_PER_S:
        system = f"system time {alone['system_s']:.2f} to {together['system_s']:.2f} s"
        return f"{verdict}: they sleep until they are woken: {system}, {switches}"
    more = f"processor time {cpu[0]:.2f} to {cpu[1]:.2f} s"
    if cpu[1] > MORE * cpu[0]:
        return f"{verdict}: they wait awake, for memory or a lock: {more}, {switches}"
    return f"{verdict}: neither for sleep nor awake, so one at a time: {more}, {switches}"


def values(cell: Cell) -> dict[str, float]:
    names = ("elapsed_s", "user_s", "system_s", "voluntary_switches")
    return {name: cell.median(name) or 0.0 for name in names}
