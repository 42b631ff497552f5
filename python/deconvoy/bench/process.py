"""Programs of scenarios as child processes: run to their end, or asked by lines."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from typing import IO, Any, TypeVar

from deconvoy.bench.accounting import Memory, accounting
from deconvoy.bench.guard import guard

T = TypeVar("T")

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
    with tempfile.TemporaryFile("w+", errors="replace") as complaints:
        process = begin(command, environment, complaints)
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
            guard.end(process.pid)
        if process.returncode == LACKS:
            raise Lacks(str(_parse(text, command).get("lacks", "it does not say what")))
        if process.returncode != 0 or late.is_set():
            complaints.seek(0)
            took = f"took longer than {limit_s:.0f} s" if late.is_set() else ""
            raise failure(command, process.returncode, complaints.read() or text, took)
    said = with_elapsed(_parse(text, command), command)
    return said | accounting(usage) | memory.taken(usage)


def begin(
    command: Sequence[str], environment: dict[str, str], complaints: IO[str]
) -> subprocess.Popen[str]:
    """A program with a session of its own, which is ended when we are killed.

    Raises RunFailed when it cannot be run.
    """
    guard.ready()
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=complaints,
            env=environment,
            text=True,
            errors="replace",
            bufsize=1,
            start_new_session=True,
        )
    except OSError as error:
        raise RunFailed(f"{command[0]}: {error.strerror}") from error
    guard.begun(process.pid)
    return process


def with_elapsed(said: dict[str, Any], command: Sequence[str]) -> dict[str, Any]:
    """What a program said, if it has the time that it took."""
    took = said.get("elapsed_s")
    if not isinstance(took, int | float) or not 0 < took < float("inf"):
        raise RunFailed(f"{' '.join(command)}: printed {said!r}, without a time in elapsed_s")
    return said


@contextmanager
def limited(leader: int, limit_s: float) -> Iterator[threading.Event]:
    """Ends a program and what it has begun after so many seconds; whether that was so."""
    late = threading.Event()

    def end() -> None:
        late.set()
        guard.end(leader)

    timer = threading.Timer(limit_s, end)
    timer.daemon = True
    try:
        timer.start()
        yield late
    finally:
        timer.cancel()


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
        try:
            self._process = begin(command, environment, self._complaints)
        except BaseException:
            self._complaints.close()
            raise
        self._memory = Memory(self._process.pid)
        try:
            said = self._answer()
            if "lacks" in said:
                raise Lacks(str(said["lacks"]))
            self.port = self._checked(said, "port", int)
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
        # It may have closed its end, and go on.
        guard.end(self.pid)
        status = self._process.wait()
        self._complaints.seek(0)
        how = f"did not answer for {ANSWER_LIMIT_S:.0f} s" if late.is_set() else ""
        raise failure(self.command, status, self._complaints.read(), how)

    def _checked(self, said: dict[str, Any], name: str, kind: type[T]) -> T:
        """A value of what it said. Raises RunFailed when that has none of its kind."""
        if not isinstance(found := said.get(name), kind):
            raise RunFailed(f"{' '.join(self.command)}: printed {said!r}, without {name}")
        return found

    def mark(self) -> tuple[float, list[int]]:
        """When, in seconds of its own clock, and how far each of its threads has counted."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write("\n")
        said = self._answer()
        return self._checked(said, "at", float), self._checked(said, "counts", list)

    def finish(self) -> dict[str, Any]:
        """What it says last, before it ends by itself, and what the kernel accounted to it.

        Raises RunFailed when it ends badly.
        """
        said = with_elapsed(self._answer(), self.command)
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
        guard.end(self.pid)
        if self._process.returncode is None:
            self._process.wait()
        for file in (self._process.stdin, self._process.stdout, self._complaints):
            if file is not None:
                with suppress(BrokenPipeError):
                    file.close()
