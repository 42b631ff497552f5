"""A child process, and what the kernel accounts to it."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

# A program ends so that lacks what it was asked for, after a line that says what.
LACKS = 3

# A program that takes longer hangs, in seconds.
TIME_LIMIT_S = 600.0

# A server that does not answer for so long hangs, in seconds.
ANSWER_LIMIT_S = 60.0

# So much of what a failed program said is told.
LAST_LINES = 3


class RunFailed(Exception):
    """A program of a scenario ended badly; the text says how."""


class Lacks(RunFailed):
    """A runtime that has not what a run asks for; the text says what. Nobody's fault."""


def accounting(usage: resource.struct_rusage) -> dict[str, float]:
    """What the kernel accounted to a child that has ended. Its peak memory only if that is more
    than ours: what it shared with us before it began its program counts, too."""
    found = {
        "user_s": usage.ru_utime,
        "system_s": usage.ru_stime,
        "voluntary_switches": usage.ru_nvcsw,
        "involuntary_switches": usage.ru_nivcsw,
        "minor_faults": usage.ru_minflt,
        "major_faults": usage.ru_majflt,
    }
    if usage.ru_maxrss > resource.getrusage(resource.RUSAGE_SELF).ru_maxrss:
        found["peak_memory_bytes"] = usage.ru_maxrss * 1024
    return found


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
    command: Sequence[str],
    environment: dict[str, str],
    given: str = "",
    limit_s: float = TIME_LIMIT_S,
) -> dict[str, Any]:
    """Runs a program that reads what is `given` and prints one JSON line; its values and the
    kernel's. Nothing that it has begun goes on afterwards.

    Raises RunFailed when it fails, prints anything else, or takes longer than the limit.
    """
    pipe = subprocess.PIPE
    with tempfile.TemporaryFile("w+", errors="replace") as complaints:
        process = subprocess.Popen(
            command,
            stdin=pipe,
            stdout=pipe,
            stderr=complaints,
            env=environment,
            text=True,
            start_new_session=True,
        )
        try:
            assert process.stdin is not None and process.stdout is not None
            with limited(process.pid, limit_s) as late:
                with suppress(BrokenPipeError), process.stdin as taken:
                    taken.write(given)
                with process.stdout as output:
                    text = output.read()
                # Reaped by hand: only wait4 tells the accounting of one child.
                _, status, usage = os.wait4(process.pid, 0)
                process.returncode = os.waitstatus_to_exitcode(status)
        finally:
            end_group(process.pid)
        if process.returncode == LACKS:
            raise Lacks(_parse(text, command)["lacks"])
        if process.returncode != 0 or late.is_set():
            complaints.seek(0)
            took = f"took longer than {limit_s:.0f} s" if late.is_set() else ""
            raise failure(command, process.returncode, complaints.read() or text, took)
    return _parse(text, command) | accounting(usage)


@contextmanager
def limited(leader: int, limit_s: float) -> Iterator[threading.Event]:
    """Ends a program and what it has begun after so many seconds; whether that was so."""
    late = threading.Event()

    def end() -> None:
        late.set()
        end_group(leader)

    timer = threading.Timer(limit_s, end)
    timer.start()
    try:
        yield late
    finally:
        timer.cancel()


def end_group(leader: int) -> None:
    """Ends what a program has begun, and the program."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def failure(command: Sequence[str], status: int, said: str, how: str = "") -> RunFailed:
    """How a program has failed, with what it said last."""
    if not how:
        how = f"exit status {status}" if status >= 0 else f"ended by signal {-status}"
    lines = [line.strip() for line in said.splitlines() if line.strip()][-LAST_LINES:]
    last = f"; it said last: {' / '.join(lines)}" if lines else ""
    return RunFailed(f"{' '.join(command)}: {how}{last}")


class Server:
    """A server of a scenario: a child that is asked by lines and answers with JSON lines."""

    def __init__(self, command: Sequence[str], environment: dict[str, str]) -> None:
        self.command = list(command)
        self._complaints = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            env=environment,
            text=True,
            bufsize=1,
            start_new_session=True,
        )
        try:
            said = self._answer()
            if "lacks" in said:
                raise Lacks(said["lacks"])
            self.port: int = said["port"]
        except BaseException:
            self.end()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        with limited(self.pid, ANSWER_LIMIT_S) as late:
            line = self._process.stdout.readline()
        if line:
            return _parse(line, self.command)
        status = self._process.wait()
        self._complaints.seek(0)
        how = f"did not answer for {ANSWER_LIMIT_S:.0f} s" if late.is_set() else ""
        raise failure(self.command, status, self._complaints.read(), how)

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
        with limited(self.pid, ANSWER_LIMIT_S):
            _, status, usage = os.wait4(self.pid, 0)
        self._process.returncode = os.waitstatus_to_exitcode(status)
        return accounting(usage)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """It and what it has begun."""
        end_group(self.pid)
        if self._process.returncode is None:
            self._process.wait()
        for file in (self._process.stdin, self._process.stdout, self._complaints):
            if file is not None:
                with suppress(BrokenPipeError):
                    file.close()
