"""Children of fork futures as their parent sees them, and what they say."""

from __future__ import annotations

import contextlib
import mmap
import os
import pickle
import signal
import warnings
from pathlib import Path
from typing import Any, NamedTuple

from deconvoy.futures import child as children
from deconvoy.futures.errors import FutureKilled, FutureLost
from deconvoy.futures.future import future

# Read at a time, in bytes: most answers are small, and memory that is touched is copied.
PIECE = 4096


class Answer(NamedTuple):
    """As it came: which, its pickle, and the buffers beside it."""

    kind: bytes
    data: Any
    buffers: list[Any]

    def settle(self, one: future[Any]) -> bool:
        """Ends the future with it, and issues its warnings; whether the future was not over."""
        try:
            content, told = pickle.loads(self.data, buffers=self.buffers)
        except FutureKilled:
            # Of this thread.
            raise
        except Exception as error:
            return one._fail(FutureLost(f"its answer cannot be read: {error}"))
        for category, text, file, line in told:
            with contextlib.suppress(Warning):
                warnings.warn_explicit(text, category, file, line)
        if self.kind == children.VALUE:
            return one._settle(content)
        failure: children.Failure = content
        return one._fail(failure.with_traceback())


class Child:
    """A child process, as its parent sees it. `answers`, `large`, `output`: the parent's end of the
    pipe, and the files in memory of what is large and of what it prints."""

    def __init__(self, one: future[Any], pid: int, answers: int, large: int, output: int) -> None:
        self.future = one
        self.pid = pid
        self.answers = answers
        self.has_started = False
        # Its place to run was given back for it.
        self.is_replaced = False
        self.killed_at: float | None = None
        self._large = large
        self._output = output
        self._received = bytearray()

    def output(self) -> str:
        """What it has printed so far."""
        size = os.lseek(self._output, 0, os.SEEK_END)
        return os.pread(self._output, size, 0).decode(errors="replace") if size else ""

    def receive(self) -> tuple[bool, Answer | None]:
        """Whether it has said its last, and what."""
        while True:
            try:
                data = os.read(self.answers, PIECE)
            except BlockingIOError:
                return False, None
            self._received += data
            if (answer := self._take_in()) is not None:
                return True, answer
            if not data:
                return True, None

    def _take_in(self) -> Answer | None:
        """The whole answer, if it is there."""
        head = children.HEAD
        while len(self._received) >= head.size:
            kind, length, count = head.unpack_from(self._received)
            if kind == children.STARTED:
                self.has_started = True
                self.future._begin()
                del self._received[: head.size]
                continue
            begin = head.size + count * children.LENGTH.size
            if len(self._received) < begin:
                return None
            lengths = [
                children.LENGTH.unpack_from(self._received, head.size + place * 8)[0]
                for place in range(count)
            ]
            total = length + sum(lengths)
            if total >= children.LARGE:
                return Answer(kind, *from_file(self._large, length, lengths))
            if len(self._received) < begin + total:
                return None
            view = memoryview(bytes(self._received))[begin:]
            buffers, end = [], length
            for size in lengths:
                buffers.append(bytearray(view[end : end + size]))
                end += size
            return Answer(kind, view[:length], buffers)
        return None

    def close(self) -> None:
        """In a process that has its descriptors by a fork, too: it is another's there."""
        for end in (self.answers, self._large, self._output):
            os.close(end)

    def reap(self, options: int) -> int | None:
        """The exit code, if it has ended (negative: a signal); None: it has not. 0 also if somebody
        else has taken it."""
        try:
            ended, status = os.waitpid(self.pid, options)
        except ChildProcessError:
            return 0
        return os.waitstatus_to_exitcode(status) if ended else None

    def signal(self, how: signal.Signals) -> None:
        """To it and to all that descend from it: futures of its own, commands that it runs."""
        with contextlib.suppress(ProcessLookupError):
            # So that it begins no others meanwhile.
            os.kill(self.pid, signal.SIGSTOP)
        for pid in [*descendants(self.pid), self.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, how)
                os.kill(pid, signal.SIGCONT)


def descendants(pid: int) -> list[int]:
    """The processes that a process has begun and those of these, as far as they are alive."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            for one in (thread / "children").read_text().split():
                found += [int(one), *descendants(int(one))]
    return found


def why_none(code: int, said: str) -> str:
    """Why a child has ended without an answer, from its exit code and what it has printed."""
    how = f"exited with status {code}"
    if code < 0:
        how = f"was ended by {signal.Signals(-code).name}"
    last = f"; it said last: {said.strip().splitlines()[-1]}" if said.strip() else ""
    return f"its process {how} before it had an answer{last}"


def from_file(file: int, length: int, lengths: list[int]) -> tuple[memoryview, list[memoryview]]:
    """The pickle and its buffers, from a file in memory, which stays mapped as long as they are
    used."""
    size = os.fstat(file).st_size
    mapped = memoryview(mmap.mmap(file, size))
    begins = children.places(length, lengths)
    views = [mapped[at : at + size] for at, size in zip(begins, [length, *lengths], strict=True)]
    return views[0], views[1:]
