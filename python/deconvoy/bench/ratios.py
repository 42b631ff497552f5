"""Ratios of times that the sources give, and ours: they do not hang on how fast a processor is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from deconvoy.bench.respond import SIMULATED
from deconvoy.bench.summary import Cell, Key
from deconvoy.bench.table import published

Row = dict[str, Any]


@dataclass(frozen=True)
class Ratio:
    """What is compared; names and ratios, of the source and of a result."""

    scenario: str
    what: str
    source: str
    published: list[tuple[str, float]]
    measured: list[tuple[str, float]]


def ratios(found: dict[Key, Cell]) -> list[Ratio]:
    """Those that the result has cells for."""
    made = []
    for scenario, (what, of_source, other_of) in KNOWN.items():
        theirs = [
            (f"{name_of(row)} ({row.get('os', row.get('host', ''))})", gained)
            for row in published()[scenario]["rows"]
            if (gained := of_source(row)) is not None
        ]
        ours = []
        for key, cell in found.items():
            other = other_of(key) if key.scenario == scenario else None
            base = time_of(found[other]) if other in found and other is not None else None
            if base and (took := time_of(cell)) is not None:
                ours.append((row_name(key), took / base))
        if ours:
            made.append(Ratio(scenario, what, source_of(scenario), theirs, ours))
    return made


def time_of(cell: Cell) -> float | None:
    """The elapsed time; of a client that has given up, what all messages would have taken."""
    elapsed, answered, asked = map(cell.median, ("elapsed_s", "messages", "work"))
    if elapsed is None or answered == 0:
        return None
    return elapsed * asked / answered if answered and asked else elapsed


def row_name(key: Key) -> str:
    """`ruby3.1, thread, 4`."""
    mode = f", {key.mode}" if key.mode else ""
    return f"{key.full_runtime}{mode}, {key.workers:,}"


def name_of(row: Row) -> str:
    return f"{row.get('runtime', row.get('implementation'))}"


def source_of(scenario: str) -> str:
    if scenario == SIMULATED:
        return "R. Anderson, Get Your Thread Off of My Fork (2009)"
    return str(published()[scenario]["source"])


def _of(row: Row, name: str, base: str) -> float | None:
    return row[name] / row[base] if name in row and base in row else None


def _forks_of_source(row: Row) -> float | None:
    """A row of forks, over that of threads of the same language and machine."""
    if row["method"] != "fork":
        return None
    same = ("host", "implementation")
    for other in published()[SIMULATED]["rows"]:
        if other["method"] == "thread" and all(other[name] == row[name] for name in same):
            return float(row["elapsed"] / other["elapsed"])
    return None


def _two_threads(key: Key) -> Key | None:
    is_it = key.mode == "thread" and key.workers == 2
    return replace(key, mode="sequential", workers=1) if is_it else None


def _beside_one(key: Key) -> Key | None:
    return replace(key, workers=0) if key.workers == 1 else None


def _forks(key: Key) -> Key | None:
    return replace(key, mode="thread") if key.mode == "fork" else None


# What is compared, in a row of the source, and with which other cell in a result.
KNOWN: dict[str, tuple[str, Callable[[Row], float | None], Callable[[Key], Key | None]]] = {
    "countdown": (
        "the time of two threads, over that of one",
        lambda row: _of(row, "two_threads", "sequential"),
        _two_threads,
    ),
    "messaging": (
        "the time beside one CPU-bound thread, over that alone",
        lambda row: _of(row, "one_cpu_thread", "unloaded"),
        _beside_one,
    ),
    SIMULATED: (
        "the time of a process for each request, over that of a thread",
        _forks_of_source,
        _forks,
    ),
}
