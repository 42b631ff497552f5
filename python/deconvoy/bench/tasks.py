"""Tables of the scenarios that are made of tasks."""

from __future__ import annotations

from dataclasses import replace

from rich.table import Table

from deconvoy import output
from deconvoy.bench.results import Result
from deconvoy.bench.summary import Cell, Key, cells
from deconvoy.bench.table import percent, published, seconds

# A task is worth its while if all that its workers could give is had, but for a tenth.
FULL = 0.9

# What the heads of a table mean, under it; of a report on granularity, and of another.
KEYS = {
    False: """\
speed-up: the time of mode sequential, of this one; ~ the intervals overlap. CPU: of all processes,
  of the time; the making of the pool counts, though not in the time. a call: the time by the number
  of calls. GC: seconds in the collector, of all processes; in threads that share a GIL the others
  may run meanwhile.""",
    True: """\
overhead: what the smallest task costs beside its work. no slower, all of it: the smallest task of
  those tried from which on all are no slower than one after the other, and from which on 90 % is
  had of what so many workers could give on these cores; a task's length is measured. -: none.""",
}


def tasks_table(result: Result, scenario: str) -> Table:
    """A line a cell of one scenario."""
    found = {key: cell for key, cell in cells(result).items() if key.scenario == scenario}
    sizes = {key.size for key in found} - {None}
    numbers = ("workers", "elapsed s", "speed-up", "CPU", "a call", "GC s")
    heads = ("runtime", *(("size",) if sizes else ()), "mode")
    table = output.table(
        *heads, *numbers, title=f"{scenario}: medians, [95 % interval]", numbers=(*numbers, "size")
    )
    for key, cell in found.items():
        elapsed = cell.estimates["elapsed_s"]
        cpu, calls, gc = (cell.median(name) for name in ("cpu_s", "calls", "gc_s"))
        row = [
            str(key.workers),
            seconds(elapsed),
            _speedup(cell, _sequential(key, found)),
            percent(cpu / elapsed.median if cpu is not None else None),
            output.time_text(elapsed.median / calls * 1e9) if calls else "",
            "" if gc is None else f"{gc:.3f}",
        ]
        size = [str(key.size)] if sizes else []
        table.add_row(key.full_runtime, *size, str(key.mode), *row)
    return table


def _sequential(key: Key, found: dict[Key, Cell]) -> Cell | None:
    return found.get(replace(key, workers=1, mode="sequential"))


def _speedup(cell: Cell, of: Cell | None) -> str:
    if of is None or of is cell:
        return ""
    ours, theirs = cell.estimates["elapsed_s"], of.estimates["elapsed_s"]
    mark = "" if ours.differs(theirs) else "~"
    return f"{mark}{theirs.median / ours.median:.2f}x"


def granularity_table(result: Result, scenario: str) -> Table:
    """A line a mode: the smallest tasks that are worth it."""
    rows: dict[Key, list[Cell]] = {}
    for key, cell in cells(result).items():
        if key.scenario == scenario:
            rows.setdefault(replace(key, size=None), []).append(cell)
    numbers = ("workers", "overhead", "no slower", "all of it", "best speed-up")
    title = f"{scenario}: the smallest task worth a future"
    table = output.table("runtime", "mode", *numbers, title=title, numbers=numbers)
    for key, several in rows.items():
        speedups = [speedup(cell) for cell in several]
        smallest = several[0].estimates
        elapsed, sequential = smallest["elapsed_s"].median, smallest["sequential_s"].median
        could = min(key.workers, result.cores(key.machine))
        ideal = sequential / could if max(speedups) > 1.2 else sequential
        overhead = max(elapsed - ideal, 0) / smallest["calls"].median
        table.add_row(
            key.full_runtime,
            str(key.mode),
            str(key.workers),
            output.time_text(overhead * 1e9),
            _from_on(several, speedups, 1.0),
            _from_on(several, speedups, FULL * could),
            f"{max(speedups):.2f}x",
        )
    return table


def speedup(cell: Cell) -> float:
    """Of tasks in a mode, beside the same one after the other in the same process."""
    return cell.estimates["sequential_s"].median / cell.estimates["elapsed_s"].median


def _from_on(several: list[Cell], speedups: list[float], least: float) -> str:
    """The length of the smallest task from which on all are that fast."""
    first = len(speedups)
    while first and speedups[first - 1] >= least:
        first -= 1
    if first == len(speedups):
        return "-"
    return output.time_text(several[first].estimates["task_s"].median * 1e9)


def published_table(scenario: str) -> Table | None:
    """The figures of the source of futures for the same work; None: it has none."""
    data = published()["futures"]
    known = data.get(scenario.removesuffix("-numpy"))
    if known is None or "work" not in known:
        return None
    title = f"published: {known['work']}"
    if "rows" in known:
        numbers = ("n", "CPU %", "speed-up", "ms a call")
        table = output.table(*numbers, title=title, numbers=numbers)
        for row in known["rows"]:
            table.add_row(*("" if value is None else str(value) for value in row))
        return table
    numbers = ("elapsed s", "speed-up", "CPU %", "GC s")
    table = output.table("mode", *numbers, title=title, numbers=numbers)
    base = known["sequential"]["real"]
    for mode in ("sequential", "parallel"):
        row = known[mode]
        gain = "" if mode == "sequential" else f"{base / row['real']:.2f}x"
        cpu = str(row.get("cpu_percent", ""))
        table.add_row(mode, str(row["real"]), gain, cpu, str(row["gc"]))
    return table
