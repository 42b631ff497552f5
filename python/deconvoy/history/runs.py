"""A run of a benchmark: what it printed, what the kernel accounted to it, what a tracer counted."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from deconvoy.bench.accounting import accounting
from deconvoy.history.process import Ended, last_lines, run
from deconvoy.history.store import Failure


@dataclass
class Told:
    """What a run printed and what the kernel accounted to it, or why it failed."""

    printed: str = ""
    counted: dict[str, float] = field(default_factory=dict)
    failure: Failure | None = None


def one_run(command: list[str], folder: Path, environment: dict[str, str], limit_s: float) -> Told:
    """Runs a benchmark once."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as complaints:
        try:
            ended = run(command, folder, environment, limit_s, output, complaints)
        except OSError as error:
            return Told(failure=Failure("run", f"{command[0]}: {error.strerror}"))
        if not ended.well:
            said = last_lines(complaints) or last_lines(output)
            text = f"{ended.how()}; it said: {said}" if said else ended.how()
            return Told(failure=Failure("run", text))
        output.seek(0)
        printed = output.read().decode(errors="replace")
    return Told(printed, counted_of(ended))


def counted_of(ended: Ended) -> dict[str, float]:
    peak = float(ended.usage.ru_maxrss * 1024)
    return {"elapsed_s": ended.seconds, "peak_memory_bytes": peak} | {
        name: float(value) for name, value in accounting(ended.usage).items()
    }


def traced(command: list[str], calls: Path) -> list[str]:
    """Counts the system calls of a command, into a file."""
    return ["strace", "-f", "-c", "-S", "name", "-o", str(calls), *command]


def system_calls(table: str) -> dict[str, float]:
    """What strace counted: all of them, and those that wait for or wake another thread."""
    found = {"system_calls": 0.0, "futex": 0.0}
    for line in table.splitlines():
        parts = line.split()
        # A line a call: share, seconds, of each, how many, errors (if any), the name.
        with suppress(ValueError, IndexError):
            if parts[-1] != "total":
                count = float(parts[3])
                found["system_calls"] += count
                found["futex"] += count if parts[-1] == "futex" else 0.0
    return found
