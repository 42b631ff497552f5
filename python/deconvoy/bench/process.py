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
from contextlib import closing, contextmanager, suppress
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


# How often the memory of a run is looked at, in seconds.
LOOK_EVERY_S = 0.05


class Memory:
    """What a child and those that it makes take while it runs: looked at now and then.

    Of the child alone, the most it ever had resident (VmHWM): what the kernel accounts to it when
    it has ended begins with what it shared with us before it began its program. Of all of them, and
    of what the kernel needs for them, how much less memory the whole machine had to give.
    """

    def __init__(self, pid: int) -> None:
        self._status = Path(f"/proc/{pid}/status")
        self._begun = self._least = available_bytes()
        self._resident = 0
        self._ended = threading.Event()
        self._looker = threading.Thread(target=self._look, daemon=True)
        self._looker.start()

    def _look(self) -> None:
        while not self._ended.wait(LOOK_EVERY_S):
            self._least = min(self._least, available_bytes())
            with suppress(OSError):
                self._resident = max(self._resident, _field(self._status, "VmHWM:"))

    def close(self) -> None:
        self._ended.set()
        self._looker.join()

    def taken(self, usage: resource.struct_rusage) -> dict[str, float]:
        """What was seen. `usage`: what the kernel accounted to the child in the end."""
        self.close()
        found = {"machine_memory_bytes": float(self._begun - self._least)}
        # No more than we have had ourselves: that may be ours.
        is_its_own = usage.ru_maxrss > resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        if resident := usage.ru_maxrss * 1024 if is_its_own else self._resident:
            found["peak_memory_bytes"] = float(resident)
        return found


def available_bytes() -> int:
    """What the machine could give to a program without taking it from another."""
    return _field(Path("/proc/meminfo"), "MemAvailable:")


def _field(path: Path, name: str) -> int:
    """A line of a file of the kernel's that gives KiB, in bytes; 0 without such a line."""
    _, found, rest = path.read_text().partition(name)
    return int(rest.split(maxsplit=1)[0]) * 1024 if found else 0


def accounting(usage: resource.struct_rusage) -> dict[str, float]:
    """What the kernel accounted to a child that has ended."""
    return {
        "user_s": usage.ru_utime,
        "system_s": usage.ru_stime,
        "voluntary_switches": usage.ru_nvcsw,
        "involuntary_switches": usage.ru_nivcsw,
        "minor_faults": usage.ru_minflt,
        "major_faults": usage.ru_majflt,
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
            with closing(Memory(process.pid)) as memory, limited(process.pid, limit_s) as late:
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
    said = _parse(text, command)
    if not isinstance(said.get("elapsed_s"), int | float):
        raise RunFailed(f"{' '.join(command)}: printed {text.strip()!r}, without elapsed_s")
    return said | accounting(usage) | memory.taken(usage)


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
        self._memory = Memory(self._process.pid)
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

    def finish(self) -> dict[str, Any]:
        """What it says last, before it ends by itself, and what the kernel accounted to it.

        Raises RunFailed when it ends badly.
        """
        said = self._answer()
        usage = self.stop()
        if status := self._process.returncode:
            self._complaints.seek(0)
            raise failure(self.command, status, self._complaints.read())
        return said | usage

    def blamed(self, error: RunFailed) -> RunFailed:
        """Why its client has failed: because it has, if that is so."""
        if (status := self._process.poll()) is None:
            return error
        self._complaints.seek(0)
        return failure(self.command, status, self._complaints.read())

    def stop(self) -> dict[str, float]:
        """Ends it; what the kernel accounted to it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        with limited(self.pid, ANSWER_LIMIT_S):
            _, status, usage = os.wait4(self.pid, 0)
        self._process.returncode = os.waitstatus_to_exitcode(status)
        return accounting(usage) | self._memory.taken(usage)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """It and what it has begun."""
        self._memory.close()
        end_group(self.pid)
        if self._process.returncode is None:
            self._process.wait()
        for file in (self._process.stdin, self._process.stdout, self._complaints):
            if file is not None:
                with suppress(BrokenPipeError):
                    file.close()
