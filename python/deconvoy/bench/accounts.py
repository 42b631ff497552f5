"""Everything measured of every cell, as a table that a program or a spreadsheet reads."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import replace

from rich.table import Table
from rich.text import Text

from deconvoy import output
from deconvoy.bench.comparison import value_text
from deconvoy.bench.respond import SOCKETS
from deconvoy.bench.results import Result
from deconvoy.bench.show import published_tables, tables
from deconvoy.bench.summary import Cell, Key, cells

# Their names in results, and what the heads of a table call them.
MEASURED = {
    "elapsed_s": "elapsed",
    "user_s": "user",
    "system_s": "system",
    "cpu_share": "CPU",
    "voluntary_switches": "voluntary",
    "involuntary_switches": "involuntary",
    "minor_faults": "minor faults",
    "major_faults": "major faults",
    "peak_memory_bytes": "largest",
    "machine_memory_bytes": "all memory",
    "gc_s": "GC",
    "p50_ns": "p50",
    "p90_ns": "p90",
    "p99_ns": "p99",
    "max_ns": "longest",
}

ACCOUNT_KEY = """\
Medians over runs. user, system, switches, faults: by the kernel, of the program and its processes.
  CPU: user and system, of the elapsed time. largest: the most memory that one process had;
  all memory: how much less the machine had to give. GC: in the collector, where the runtime tells.
  speed-up, efficiency: over mode sequential of the same runtime, and that by worker."""


def account_table(result: Result) -> Table:
    """A line a cell; columns of what nothing was measured of are left out."""
    found = cells(result)
    known = [
        name for name in MEASURED if any(value(cell, name) is not None for cell in found.values())
    ]
    numbers = ("workers", "size", *(MEASURED[name] for name in known), "speed-up", "efficiency")
    title = "all that was measured"
    heads = ("scenario", "runtime", "mode", "workers", "size")
    table = output.table(*heads, *numbers[2:], title=title, numbers=numbers)
    for key, cell in found.items():
        gained = speedup(cell, found)
        table.add_row(
            *map(output.plain, (key.scenario, key.full_runtime, key.mode or "")),
            *(f"{key.workers:,}", str(key.size or "")),
            *(text(name, value(cell, name)) for name in known),
            "" if gained is None else f"{gained:.2f}x",
            "" if gained is None else f"{100 * gained / key.workers:.0f} %",
        )
    return table


def all_tables(result: Result) -> list[tuple[Table, str]]:
    """What is shown, what was published, and all that was measured; each with its key."""
    several = [*tables(result), *((table, "") for table in published_tables(result))]
    return [*several, (account_table(result), ACCOUNT_KEY)]


def value(cell: Cell, name: str) -> float | None:
    """The median of a value; the share of processor time is made of three."""
    if name != "cpu_share":
        return cell.median(name)
    if cell.key.scenario in ("messaging", SOCKETS):
        # The server's whole life, and a part of it.
        return None
    user, system, elapsed = map(cell.median, ("user_s", "system_s", "elapsed_s"))
    if user is None or system is None or not elapsed:
        return None
    return (user + system) / elapsed


def text(name: str, found: float | None) -> str:
    if found is None:
        return ""
    if name == "cpu_share":
        return f"{100 * found:.0f} %"
    if name.endswith(("_switches", "_faults")):
        return f"{found:,.0f}"
    return value_text(name, found)


def speedup(cell: Cell, found: dict[Key, Cell]) -> float | None:
    one = found.get(replace(cell.key, workers=1, mode="sequential"))
    if one is None or one is cell or not cell.key.workers:
        return None
    ours, theirs = cell.median("elapsed_s"), one.median("elapsed_s")
    return theirs / ours if ours and theirs else None


def as_csv(result: Result) -> str:
    """A line a cell and value: the median with its interval, in the unit that ends the name."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    heads = (
        *("scenario", "work", "runtime", "machine", "mode", "workers", "size"),
        "switch_interval_s",
    )
    writer.writerow([*heads, "runs", "unquiet", "value", "median", "low", "high"])
    for key, cell in cells(result).items():
        what = [getattr(key, name) for name in heads]
        for name, found in sorted(cell.estimates.items()):
            numbers = (found.median, found.low, found.high)
            writer.writerow([*what, len(cell.runs), cell.unquiet, name, *map(repr, numbers)])
    return file.getvalue()


def grid(table: Table) -> tuple[list[str], list[list[str]], list[bool]]:
    """The heads, the rows, and which columns are numbers, of a table for the terminal."""
    heads = [plain(column.header) for column in table.columns]
    rows = [
        [plain(text) for text in row] for row in zip(*(c.cells for c in table.columns), strict=True)
    ]
    return heads, rows, [column.justify == "right" for column in table.columns]


def plain(text: object) -> str:
    return Text.from_markup(str(text)).plain


def as_markdown(tables: Sequence[tuple[Table, str]]) -> str:
    """Tables with what their heads mean."""
    parts = []
    for table, key in tables:
        heads, rows, numbers = grid(table)
        lines = [heads, ["--:" if number else "---" for number in numbers], *rows]
        parts.append(f"## {plain(table.title or '')}\n")
        parts.append("\n".join(f"| {' | '.join(map(escaped, row))} |" for row in lines) + "\n")
        if key:
            parts.append(f"{' '.join(key.split())}\n")
    return "\n".join(parts)


def escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")
