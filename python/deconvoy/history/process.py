"""Steps of a build, and runs of a benchmark: programs that may fail, hang, or wait for input."""

from __future__ import annotations

import os
import platform
import re
import resource
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psutil

from deconvoy.bench.guard import guard

# How often it is looked whether a step waits for input, and so often it must seem so, in a row.
LOOK_S = 0.25
SURE_AFTER = 4

# The number of the system call `read`.
READ = "63" if platform.machine() == "aarch64" else "0"

# So much of what a failed step said is told.
LAST_LINES = 3
LINE = 300
MOST = 1 << 18

# A line that tells of an error, and what make says of its own.
ERROR = re.compile(
    r"\berror:|\bfatal\b|undefined reference|\bcannot\b|not found|no such", re.IGNORECASE
)
MAKE = re.compile(r"g?make(\[\d+\])?: (\*\*\*|Entering|Leaving)")


@dataclass(frozen=True)
class Ended:
    """How a program ended. `why`: empty if by itself."""

    status: int
    seconds: float
    usage: resource.struct_rusage
    why: str

    @property
    def well(self) -> bool:
        return self.status == 0 and not self.why

    def how(self) -> str:
        if self.why:
            return self.why
        if self.status < 0:
            name = signal.strsignal(-self.status) or "unknown"
            return f"ended by signal {-self.status} ({name})"
        return f"exit status {self.status}"


class Stopped(Exception):
    """We are ending: how a program has ended says nothing of it."""


class WaitsForInput(Exception):
    """A step that reads what nobody will type."""


def run(
    command: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    limit_s: float,
    output: IO[bytes],
    complaints: IO[bytes] | None = None,
    watch_input: bool = False,
) -> Ended:
    """Runs a program to its end; nothing that it has begun goes on afterwards.

    What it prints goes to `output`, and so does what it complains of, unless that has its own.
    `watch_input`: its input stays open, and it is ended when it reads from it.

    Raises OSError when there is no such program, WaitsForInput, and Stopped.
    """
    guard.ready()
    if guard.stopping:
        raise Stopped
    given, kept_open = os.pipe() if watch_input else (os.open(os.devnull, os.O_RDONLY), -1)
    try:
        begun = time.monotonic()
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=dict(environment),
            stdin=given,
            stdout=output,
            stderr=output if complaints is None else complaints,
            start_new_session=True,
        )
        guard.begun(process.pid)
        with Limit(process.pid, limit_s, given if watch_input else -1) as limit:
            try:
                _, status, usage = os.wait4(process.pid, 0)
                seconds = time.monotonic() - begun
                process.returncode = os.waitstatus_to_exitcode(status)
            finally:
                guard.end(process.pid)
                if process.returncode is None:
                    process.wait()
    finally:
        os.close(given)
        if kept_open >= 0:
            os.close(kept_open)
    if guard.stopping:
        raise Stopped
    if limit.waits:
        raise WaitsForInput
    return Ended(process.returncode, seconds, usage, limit.why)


class Limit:
    """Ends a program that takes too long, or that reads from an input that never comes."""

    def __init__(self, leader: int, limit_s: float, given: int) -> None:
        self.why = ""
        self.waits = False
        self._leader = leader
        self._limit_s = limit_s
        self._input = os.readlink(f"/proc/self/fd/{given}") if given >= 0 else ""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Limit:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        deadline = time.monotonic() + self._limit_s
        seemed = 0
        while True:
            left = deadline - time.monotonic()
            if self._ended.wait(min(LOOK_S, left) if self._input else max(left, 0.0)):
                return
            if time.monotonic() >= deadline:
                self.why = f"took longer than {self._limit_s:.0f} s"
                break
            seemed = seemed + 1 if self._reads() else 0
            if seemed >= SURE_AFTER:
                self.waits = True
                break
        guard.end(self._leader)

    def _reads(self) -> bool:
        """Whether one of its processes is reading from the input."""
        with suppress(psutil.Error):
            leader = psutil.Process(self._leader)
            return any(self._is_reading(one.pid) for one in [leader, *leader.children(True)])
        return False

    def _is_reading(self, pid: int) -> bool:
        with suppress(OSError):
            call = Path(f"/proc/{pid}/syscall").read_text().split()
            if len(call) > 1 and call[0] == READ:
                return os.readlink(f"/proc/{pid}/fd/{int(call[1], 16)}") == self._input
        return False


def last_lines(file: IO[bytes], begin: int = 0) -> str:
    """What was said of errors, from a place in the file on, in one line; the end, if nothing was.
    What make says when it ends is no news."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(begin, size - MOST))
    text = file.read().decode(errors="replace").replace("\0", "")
    lines = [line.strip()[:LINE] for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if not MAKE.match(line)] or lines
    errors = [line for line in telling if ERROR.search(line)]
    return " / ".join(errors[:LAST_LINES] or telling[-LAST_LINES:])
