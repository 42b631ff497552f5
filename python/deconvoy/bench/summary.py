"""What the runs of a result say: an estimate a cell, and which points are dominated."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from deconvoy import output
from deconvoy.bench.results import Result, Run, unquiet
from deconvoy.bench.stats import Estimate, estimate, quantiles

# How work is spread, in the order in which that is shown.
MODES = (
    *("sequential", "thread", "fork", "green", "joblib"),
    *("future-thread", "future-fork", "future-dask"),
)

# What is estimated of each run, and how it is taken from the run's values.
_LATENCY_QUANTILES = {"p50_ns": 0.5, "p90_ns": 0.9, "p99_ns": 0.99, "max_ns": 1.0}

# Where a result keeps its cells, with the number of runs that they were made of.
_KEPT = "_cells"


@dataclass(frozen=True)
class Key:
    """A cell of the matrix."""

    scenario: str
    runtime: str
    workers: int
    switch_interval_s: float | None
    mode: str | None = None
    size: int | None = None
    # Of a cluster: nothing is compared across two.
    machine: str = ""
    work: int = 0
    # Where a result has several amounts of it, that is told.
    tells_work: bool = field(default=False, compare=False)

    @property
    def full_runtime(self) -> str:
        """The runtime, with what is set in it, and where it ran."""
        name = self.runtime
        if self.switch_interval_s is not None:
            name += f", switch interval {output.time_text(self.switch_interval_s * 1e9)}"
        if self.tells_work:
            name += f", work {self.work:,}"
        return f"{name} on {self.machine}" if self.machine else name

    @property
    def like(self) -> tuple[str, str, int]:
        """What cells have to have in common to be compared: the scenario, its work, the machine."""
        return self.scenario, self.machine, self.work

    @property
    def name(self) -> str:
        """For a person, in one line."""
        parts = [self.scenario, self.full_runtime]
        if self.mode is not None:
            parts.append(self.mode)
        parts.append(f"x {self.workers}")
        if self.size is not None:
            parts.append(f"size {self.size}")
        return ", ".join(parts)


class Estimates(Mapping[str, Estimate]):
    """An estimate of each value of some runs, made when it is asked for."""

    def __init__(self, samples: dict[str, list[float]]) -> None:
        self.samples = samples
        self._made: dict[str, Estimate] = {}

    def __getitem__(self, name: str) -> Estimate:
        if name not in self._made:
            self._made[name] = estimate(self.samples[name])
        return self._made[name]

    def __contains__(self, name: object) -> bool:
        return name in self.samples

    def __iter__(self) -> Iterator[str]:
        return iter(self.samples)

    def __len__(self) -> int:
        return len(self.samples)


@dataclass(frozen=True)
class Cell:
    key: Key
    runs: list[Run]
    estimates: Estimates

    @property
    def unquiet(self) -> int:
        """Of its runs, how many were made beside other work."""
        return unquiet(self.runs)

    def median(self, name: str) -> float | None:
        found = self.estimates.get(name)
        return found.median if found else None

    def samples(self, name: str) -> list[float]:
        """The value of each run, in their order; without those that have none."""
        return self.estimates.samples.get(name, [])

    def row(self) -> dict[str, Any]:
        """For JSON: what the cell is of, how many runs, and its estimates by name."""
        estimates = {name: asdict(value) for name, value in sorted(self.estimates.items())}
        counts = {"runs": len(self.runs), "unquiet": self.unquiet}
        return asdict(self.key) | counts | {"estimates": estimates}


def _values(run: Run) -> dict[str, float]:
    values = {
        name: float(value)
        for name, value in run.values.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
    latencies = run.values.get("latency_ns")
    if latencies:
        found = quantiles(latencies, list(_LATENCY_QUANTILES.values()))
        values |= dict(zip(_LATENCY_QUANTILES, found, strict=True))
    if (answered := values.get("messages")) and "elapsed_s" in values:
        # Of a client that has given up, too.
        values["message_s"] = values["elapsed_s"] / answered
    return values


def cells(result: Result) -> dict[Key, Cell]:
    """An estimate of every value of every cell, over its runs, in the command's order. They are
    made once, as long as no run is added."""
    known = vars(result).get(_KEPT)
    if known is None or known[0] != len(result.runs):
        known = vars(result)[_KEPT] = len(result.runs), _cells(result)
    found: dict[Key, Cell] = known[1]
    return found


def _cells(result: Result) -> dict[Key, Cell]:
    grouped: dict[Key, list[Run]] = {}
    works: dict[str, set[int]] = {}
    for run in result.runs:
        works.setdefault(run.scenario, set()).add(run.work)
    for run in result.runs:
        key = Key(
            run.scenario,
            run.runtime,
            run.workers,
            run.switch_interval_s,
            run.mode,
            run.size,
            run.machine,
            run.work,
            len(works[run.scenario]) > 1,
        )
        grouped.setdefault(key, []).append(run)
    runtimes = list(dict.fromkeys([*result.runtimes, *(run.runtime for run in result.runs)]))
    modes = list(dict.fromkeys([*MODES, *(run.mode for run in result.runs)]))

    def place(key: Key) -> tuple[str, str, int, int, int, int, int, float]:
        # Longer switch intervals first; the default, which is the longest, before them.
        interval = key.switch_interval_s
        shorter = 0.0 if interval is None else 1 / interval
        mode, runtime = modes.index(key.mode), runtimes.index(key.runtime)
        size = key.size or 0
        return key.scenario, key.machine, key.work, runtime, size, mode, key.workers, shorter

    return {key: _cell(key, grouped[key]) for key in sorted(grouped, key=place)}


def _cell(key: Key, runs: list[Run]) -> Cell:
    samples: dict[str, list[float]] = {}
    for run in runs:
        for name, value in _values(run).items():
            samples.setdefault(name, []).append(value)
    return Cell(key, runs, Estimates(samples))


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
