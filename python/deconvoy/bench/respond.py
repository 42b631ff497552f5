"""Requests that overlap: what their responses say, and their table."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from rich.table import Table

from deconvoy import output
from deconvoy.bench.process import RunFailed
from deconvoy.bench.results import Result
from deconvoy.bench.summary import Cell, cells
from deconvoy.bench.table import published, ratio, seconds, switches

# Of each, in bytes.
RESPONSE = 512

_HEAD = re.compile(rb'<response id="(\d+)" begun_ns="(\d+)" ended_ns="(\d+)"><time>[^<]+</time>')

# The two forms.
SIMULATED = "respond"
SOCKETS = "respond-sockets"

KEY = """\
over a thread each: the time, of that of mode thread of the same runtime; ~ the intervals overlap.
  p50, p99: of single requests, beyond what each waits. system: of the program and all of its
  processes; faults: minor ones. largest: the peak of the largest process; all memory: how
  much less the whole machine had to give meanwhile, for all processes and what the kernel needs
  for them, to a few MiB."""


def latencies_ns(path: Path, count: int, wait_s: float) -> list[int]:
    """How long each of `count` requests took from its beginning to its response, beyond `wait_s`.

    Raises RunFailed if a response is missing, is there twice, or is none.
    """
    data = path.read_bytes()
    taken: dict[int, int] = {}
    for begin in range(0, len(data), RESPONSE):
        text = data[begin : begin + RESPONSE]
        head = _HEAD.match(text)
        if head is None or len(text) < RESPONSE or not text.endswith(b"</response>\n"):
            raise RunFailed(f"response {begin // RESPONSE} is none: {text[:60]!r}")
        number, begun, ended = map(int, head.groups())
        taken[number] = ended - begun - round(wait_s * 1e9)
    if taken.keys() != set(range(count)) or len(data) != count * RESPONSE:
        raise RunFailed(f"{len(data) // RESPONSE} responses for {count} requests")
    return list(taken.values())


def respond_table(result: Result, scenario: str = SIMULATED) -> Table:
    """A line a cell."""
    found = {key: cell for key, cell in cells(result).items() if key.scenario == scenario}
    opening = ("open s",) if scenario == SOCKETS else ()
    numbers = (
        *("requests", *opening, "elapsed s", "over a thread each", "p50", "p99"),
        *("user s", "system s", "switches", "faults", "largest", "all memory"),
    )
    title = f"{scenario}: medians, [95 % interval]"
    table = output.table("runtime", "mode", *numbers, title=title, numbers=numbers)
    for key, cell in found.items():
        threads = found.get(replace(key, mode="thread"))
        table.add_row(
            key.full_runtime,
            str(key.mode),
            f"{key.workers:,}",
            *([f"{cell.median('open_s') or 0:.2f}"] if opening else []),
            seconds(cell.estimates.get("elapsed_s")),
            ratio(cell, threads, "elapsed_s"),
            *(output.time_text(cell.median(name) or 0) for name in ("p50_ns", "p99_ns")),
            *(f"{cell.median(name) or 0:.2f}" for name in ("user_s", "system_s")),
            switches(cell),
            f"{cell.median('minor_faults') or 0:,.0f}",
            *(memory(cell, name) for name in ("peak_memory_bytes", "machine_memory_bytes")),
        )
    return table


def memory(cell: Cell, name: str) -> str:
    found = cell.median(name)
    return "" if found is None else f"{found / 2**20:,.0f} MiB"


def published_table() -> Table:
    """The figures of the source."""
    data = published()["respond"]
    numbers = ("elapsed s", "user s", "system s", "faults")
    title = "5,000 requests, as published: R. Anderson, Get Your Thread Off of My Fork (2009)"
    table = output.table("on", "runtime", "mode", *numbers, title=title, numbers=numbers)
    for row in data["rows"]:
        values = (row[name] for name in ("elapsed", "user", "sys"))
        faults = f"{row['minor_faults']:,}"
        table.add_row(row["host"], row["implementation"], row["method"], *map(str, values), faults)
    return table
