"""A child process, and what the kernel accounts to it."""

from __future__ import annotations

import json
import os
import resource
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

# A program ends so that lacks what it was asked for, after a line that says what.
LACKS = 3

# A program that prints nothing for this long hangs, in seconds.
TIME_LIMIT_S = 600.0


class RunFailed(Exception):
    """A program of a scenario ended badly; the text says how."""


def accounting(usage: resource.struct_rusage) -> dict[str, float]:
    """What the kernel accounted to a child that has ended."""
    return {
        "user_s": usage.ru_utime,
        "system_s": usage.ru_stime,
        "voluntary_switches": usage.ru_nvcsw,
        "involuntary_switches": usage.ru_nivcsw,
        "minor_faults": usage.ru_minflt,
        "major_faults": usage.ru_majflt,
        "peak_memory_bytes": usage.ru_maxrss * 1024,
    }


def switches(pid: int) -> tuple[int, int]:
    """Voluntary and involuntary context switches of all live threads of a process so far."""
    voluntary = involuntary = 0
    for status in Path(f"/proc/{pid}/task").glob("*/status"):
        try:
            lines = status.read_text().splitlines()
        except OSError:
            continue
        for line in lines:
            if line.startswith("voluntary_ctxt_switches:"):
                voluntary += int(line.split()[1])
            elif line.startswith("nonvoluntary_ctxt_switches:"):
                involuntary += int(line.split()[1])
    return voluntary, involuntary


def _parse(line: str, command: Sequence[str]) -> dict[str, Any]:
    try:
        data = json.loads(line)
    except ValueError:
        data = None
    if not isinstance(data, dict):
        raise RunFailed(f"{' '.join(command)}: printed {line.strip()!r}, not a JSON object")
    return data


def run_to_end(
    command: Sequence[str], environment: dict[str, str], given: str = ""
) -> dict[str, Any]:
    """Runs a program that reads what is `given` and prints one JSON line; its values and the
    kernel's.

    Raises RunFailed when it fails or prints anything else.
    """
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment, text=True)
    assert process.stdin is not None and process.stdout is not None
    with suppress(BrokenPipeError), process.stdin as taken:
        taken.write(given)
    with process.stdout as output:
        text = output.read()
    # Reaped by hand: only wait4 tells the accounting of one child.
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode == LACKS:
        raise RunFailed(_parse(text, command)["lacks"])
    if process.returncode != 0:
        raise RunFailed(f"{' '.join(command)}: exit status {process.returncode}")
    return _parse(text, command) | accounting(usage)


class Server:
    """A server of a scenario: a child that is asked by lines and answers with JSON lines."""

    def __init__(self, command: Sequence[str], environment: dict[str, str]) -> None:
        self.command = list(command)
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
            bufsize=1,
        )
        self.port: int = self._answer()["port"]

    @property
    def pid(self) -> int:
        return self._process.pid

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            raise RunFailed(f"{' '.join(self.command)}: exit status {self._process.returncode}")
        return _parse(line, self.command)

    def mark(self) -> dict[str, Any]:
        """The counters so far."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        return self._answer()

    def stop(self) -> dict[str, float]:
        """Ends it; what the kernel accounted to it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        _, status, usage = os.wait4(self._process.pid, 0)
        self._process.returncode = os.waitstatus_to_exitcode(status)
        return accounting(usage)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
