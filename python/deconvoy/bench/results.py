"""Result files: versioned JSON lines, first about the series, then one for each run as it comes.

A line is written by one call and ends with a line feed: a kill at any point leaves at most a last
line that is not whole, which no reader takes.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from types import NoneType
from typing import Any

from deconvoy.errors import UserError
from deconvoy.files import write_whole

# Raised with every change of the layout; `load` brings older files up to it.
VERSION = 4

# From this one on a file is lines.
FIRST_OF_LINES = 4

SUFFIX = ".jsonl"


@dataclass
class Run:
    """One execution. `values` are in the unit that ends their name; lists are single samples."""

    runtime: str
    scenario: str
    workers: int
    order: int
    values: dict[str, Any]
    foreign_cores: float
    quiet: bool
    switch_interval_s: float | None = None
    # How the work is spread, and of tasks how large they are.
    mode: str | None = None
    size: int | None = None
    # Of a cluster, by name; the machine that began the series has none.
    machine: str = ""
    # How much; 0: the scenario has one amount, or it is not known.
    work: int = 0


@dataclass
class Result:
    """All runs of one call, with the machine they ran on."""

    command: list[str]
    created_unix_s: float
    deconvoy: str
    machine: dict[str, Any]
    settings: dict[str, Any]
    runtimes: dict[str, str]
    runs: list[Run] = field(default_factory=list)
    # Cells without a run: what a runtime lacks, and how a program has failed.
    skipped: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    # Of a cluster.
    machines: dict[str, dict[str, Any]] = field(default_factory=dict)
    version: int = VERSION

    def lines(self) -> Iterator[str]:
        """The file: the first line, and those that come with time."""
        told = {"runs", "skipped", "failed", "machines"}
        names = [each.name for each in fields(self) if each.name not in told]
        yield line({name: getattr(self, name) for name in names})
        for name, about in self.machines.items():
            yield line({"machine": [name, about]})
        for run in self.runs:
            yield line({"run": asdict(run)})
        for kind in ("skipped", "failed"):
            for name, why in getattr(self, kind).items():
                yield line({kind: [name, why]})

    def cores(self, machine: str) -> int:
        """How many a machine of the result has for its programs."""
        about = self.machines.get(machine, {}) if machine else self.machine
        cores = about.get("cores_available")
        return cores if isinstance(cores, int) and cores > 0 else 1

    @property
    def unquiet(self) -> str | None:
        """How many of the runs were made beside other work, if any were."""
        count = unquiet(self.runs)
        return f"{count} of {len(self.runs)} runs" if count else None

    def save(self, path: Path) -> None:
        """Writes it down, whole; raises OSError when it cannot."""
        write_whole(path, "".join(self.lines()))

    def take(self, said: dict[str, Any]) -> None:
        """What a line after the first says. Raises ValueError for one that says nothing known."""
        for kind, value in said.items():
            if kind == "run":
                self.runs.append(a_run(value))
            elif kind in ("machine", "skipped", "failed"):
                name, about = value
                kept: dict[str, Any] = getattr(self, "machines" if kind == "machine" else kind)
                kept[str(name)] = a_machine(about) if kind == "machine" else str(about)
            else:
                raise ValueError(f"what is {kind!r}?")


def unquiet(runs: Sequence[Run]) -> int:
    """How many were made beside other work."""
    return sum(not run.quiet for run in runs)


def line(data: dict[str, Any]) -> str:
    return json.dumps(data) + "\n"


class Journal:
    """A result that grows, and its file with it."""

    def __init__(self, result: Result, path: Path) -> None:
        """Writes the file as the result is now. Raises OSError when it cannot, UserError when
        another bench writes it."""
        self.result = result
        if path.exists():
            # Another one's lines would go to a file that is no longer there.
            os.close(self._lock(path))
        result.save(path)
        self._handle = self._lock(path)

    def _lock(self, path: Path) -> int:
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            raise UserError(f"{path}: another bench writes it: wait until it has ended") from None
        return handle

    def take(self, **said: Any) -> None:
        """One of `run=Run`, `skipped=(name, why)`, `failed=(name, why)`,
        `machine=(name, about)`."""
        told = {kind: asdict(one) if isinstance(one, Run) else one for kind, one in said.items()}
        text = line(told).encode()
        self.result.take(told)
        if os.write(self._handle, text) != len(text):
            raise OSError(None, "No space left on device")

    def close(self) -> None:
        os.close(self._handle)

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def load(path: Path) -> Result:
    """Reads a result file of this or an older version.

    Raises UserError for a file that is none, is damaged, or was written by a newer deconvoy.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"{path}: not a result of deconvoy bench, or damaged") from error
    first, _, rest = text.partition("\n")
    data = parsed(path, first)
    if not isinstance(data, dict) or not is_whole_number(data.get("version")):
        raise UserError(f"{path}: not a result of deconvoy bench")
    if data["version"] > VERSION:
        raise UserError(
            f"{path}: written by a newer deconvoy (format {data['version']}; "
            f"this one reads up to {VERSION}): update deconvoy"
        )
    version, data["version"] = data["version"], VERSION
    try:
        if version < FIRST_OF_LINES:
            for run in data["runs"] if version < 3 else []:
                bring_up(run)
            data["runs"] = [a_run(run) for run in data["runs"]]
            return checked(Result(**data))
        result = checked(Result(**data))
        # What follows the last line feed was not written to its end.
        for each in rest.split("\n")[:-1]:
            result.take(parsed(path, each))
        return result
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path}: damaged: {error}") from error


def parsed(path: Path, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not a result of deconvoy bench, or damaged") from error


def is_whole_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


# What the parts of a run may be; `bool` is no number here.
KINDS: dict[str, tuple[type, ...]] = {
    "runtime": (str,),
    "scenario": (str,),
    "workers": (int,),
    "order": (int,),
    "values": (dict,),
    "foreign_cores": (int, float),
    "quiet": (bool,),
    "switch_interval_s": (int, float, NoneType),
    "mode": (str, NoneType),
    "size": (int, NoneType),
    "machine": (str,),
    "work": (int,),
}


def a_run(data: dict[str, Any]) -> Run:
    """Raises TypeError or ValueError when it is none."""
    run = Run(**data)
    for name, kinds in KINDS.items():
        if type(getattr(run, name)) not in kinds:
            raise ValueError(f"a run whose {name} is {getattr(run, name)!r}")
    latencies = run.values.get("latency_ns", [])
    if not isinstance(latencies, list) or not all(isinstance(one, int) for one in latencies):
        raise ValueError("latencies that are none")
    values = [value for value in run.values.values() if isinstance(value, int | float)]
    numbers = [*values, run.foreign_cores, run.switch_interval_s or 0]
    took = run.values.get("elapsed_s")
    if not all(map(math.isfinite, numbers)) or not isinstance(took, int | float) or took <= 0:
        raise ValueError("a run without a time")
    return run


def a_machine(about: Any) -> dict[str, Any]:
    """Raises ValueError when it describes none."""
    if not isinstance(about, dict) or not isinstance(about.get("cores_available", 1), int):
        raise ValueError("a machine that is none")
    load = about.get("load_at_start", [])
    if not isinstance(load, list) or not all(isinstance(one, int | float) for one in load):
        raise ValueError("a load that is none")
    return about


def checked(result: Result) -> Result:
    """Raises ValueError when a part is of another kind than it must be."""
    parts = (result.machine, result.settings, result.runtimes, result.skipped, result.failed)
    if not all(isinstance(part, dict) for part in (*parts, result.machines)):
        raise ValueError("a part is no object")
    for about in (result.machine, *result.machines.values()):
        a_machine(about)
    if not all(isinstance(about, str) for about in result.runtimes.values()):
        raise ValueError("a runtime that is none")
    if not isinstance(result.command, list) or not isinstance(result.created_unix_s, int | float):
        raise ValueError("what it says of its command")
    return result


def bring_up(run: dict[str, Any]) -> None:
    """Before version 3 only tasks had a mode."""
    if run.get("mode") is None and run.get("scenario") in ("countdown", "messaging"):
        is_one = run["scenario"] == "countdown" and run.get("workers") == 1
        run["mode"] = "sequential" if is_one else "thread"
