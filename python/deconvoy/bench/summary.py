"""What the runs of a result say: an estimate a cell, and which points are dominated."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from deconvoy.bench.results import Result, Run
from deconvoy.bench.stats import Estimate, estimate, quantile

# How work is spread, in the order in which that is shown.
MODES = (
    *("sequential", "thread", "fork", "green", "joblib"),
    *("future-thread", "future-fork", "future-dask"),
)

# What is estimated of each run, and how it is taken from the run's values.
_LATENCY_QUANTILES = {"p50_ns": 0.5, "p90_ns": 0.9, "p99_ns": 0.99, "max_ns": 1.0}


@dataclass(frozen=True)
class Key:
    """A cell of the matrix."""

    scenario: str
    runtime: str
    workers: int
    switch_interval_s: float | None
    mode: str | None = None
    size: int | None = None


@dataclass(frozen=True)
class Cell:
    key: Key
    estimates: dict[str, Estimate]
    runs: int
    unquiet: int

    def median(self, name: str) -> float | None:
        found = self.estimates.get(name)
        return found.median if found else None

    def row(self) -> dict[str, Any]:
        """For JSON: what the cell is of, how many runs, and its estimates by name."""
        estimates = {name: asdict(value) for name, value in sorted(self.estimates.items())}
        counts = {"runs": self.runs, "unquiet": self.unquiet}
        return asdict(self.key) | counts | {"estimates": estimates}


def _values(run: Run) -> dict[str, float]:
    values = {name: value for name, value in run.values.items() if isinstance(value, int | float)}
    latencies = run.values.get("latency_ns")
    if latencies:
        values |= {name: quantile(latencies, q) for name, q in _LATENCY_QUANTILES.items()}
    return values


def cells(result: Result) -> dict[Key, Cell]:
    """An estimate of every value of every cell, over its runs, in the command's order."""
    grouped: dict[Key, list[Run]] = {}
    for run in result.runs:
        key = Key(run.scenario, run.runtime, run.workers, run.switch_interval_s, run.mode, run.size)
        grouped.setdefault(key, []).append(run)
    runtimes = list(result.runtimes)
    modes = list(dict.fromkeys(run.mode for run in result.runs))

    def place(key: Key) -> tuple[str, int, int, int, int, float]:
        # Longer switch intervals first; the default, which is the longest, before them.
        interval = key.switch_interval_s
        shorter = 0.0 if interval is None else 1 / interval
        mode = MODES.index(key.mode) if key.mode in MODES else modes.index(key.mode)
        runtime = runtimes.index(key.runtime)
        return key.scenario, runtime, key.size or 0, mode, key.workers, shorter

    return {key: _cell(key, grouped[key]) for key in sorted(grouped, key=place)}


def _cell(key: Key, runs: list[Run]) -> Cell:
    all_values = [_values(run) for run in runs]
    names = {name for values in all_values for name in values}
    estimates = {
        name: estimate([values[name] for values in all_values if name in values]) for name in names
    }
    return Cell(key, estimates, len(runs), sum(not run.quiet for run in runs))


def dominates(one: Cell, other: Cell, latency: str = "p99_ns") -> bool:
    """Whether `one` answers no later and keeps no less than `other`, and is clearly better in one
    of the two: the intervals lie apart."""
    ours, theirs = one.estimates, other.estimates
    if not {latency, "beside_per_s"} <= ours.keys() & theirs.keys():
        return False
    faster, keeps = (
        theirs[latency].median - ours[latency].median,
        (ours["beside_per_s"].median - theirs["beside_per_s"].median),
    )
    clearly = (faster > 0 and ours[latency].differs(theirs[latency])) or (
        keeps > 0 and ours["beside_per_s"].differs(theirs["beside_per_s"])
    )
    return faster >= 0 and keeps >= 0 and clearly


def dominated_by(cell: Cell, others: Iterable[Cell], latency: str = "p99_ns") -> list[Cell]:
    """Those of `others` with as many workers that dominate `cell`."""
    return [
        other
        for other in others
        if other.key.workers == cell.key.workers and dominates(other, cell, latency)
    ]
