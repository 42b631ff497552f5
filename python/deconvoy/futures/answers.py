"""Children of fork futures as their parent sees them, and what they say."""

from __future__ import annotations

import contextlib
import mmap
import os
import pickle
import signal
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

from deconvoy.futures import child as children
from deconvoy.futures.errors import FutureLost
from deconvoy.futures.future import future

# Looks, a millisecond apart, for the end of a child that has closed what it answers by.
SOON = 100

# Read at a time, in bytes: most answers are small, and memory that is touched is copied.
PIECE = 4096


class Received(NamedTuple):
    """An answer as it came: which, its pickle, and the buffers beside it."""

    kind: bytes
    data: Any
    buffers: list[Any]

    def settle(self, one: future[Any]) -> bool:
        """Ends the future with it, and issues its warnings; whether the future was not over."""
        try:
            content, told = pickle.loads(self.data, buffers=self.buffers)
        except Exception as error:
            return one._fail(FutureLost(f"its answer cannot be read: {error}"))
        for category, text, file, line in told:
            # Where warnings are errors, or whoever shows them fails: that is not the future's.
            with contextlib.suppress(Exception):
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
        self.killed_at = 0.0
        # What descended from it when it was killed: process ids, and when these began.
        self._tree: dict[int, str] = {}
        self._large = large
        self._output = output
        self._received = bytearray()
        # Its exit code.
        self._code: int | None = None

    def output(self) -> str:
        """What it has printed so far."""
        size = os.lseek(self._output, 0, os.SEEK_END)
        return os.pread(self._output, size, 0).decode(errors="replace") if size else ""

    def receive(self) -> tuple[bool, Received | None]:
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

    def hear(self) -> tuple[bool, Received | None, str]:
        """As `receive`; and why there is no answer of one that has said its last without."""
        try:
            has_ended, answer = self.receive()
        except Exception as error:
            return True, None, f"its answer cannot be taken in: {error}"
        is_none = has_ended and answer is None
        return has_ended, answer, why_none(self.reap_soon(), self.output()) if is_none else ""

    def _take_in(self) -> Received | None:
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
            found = children.LENGTH.iter_unpack(self._received[head.size : begin])
            lengths = [one for (one,) in found]
            total = length + sum(lengths)
            if total >= children.LARGE:
                return Received(kind, *from_file(self._large, length, lengths))
            if len(self._received) < begin + total:
                return None
            view = memoryview(bytes(self._received))[begin:]
            buffers, end = [], length
            for size in lengths:
                buffers.append(bytearray(view[end : end + size]))
                end += size
            return Received(kind, view[:length], buffers)
        return None

    def close(self) -> None:
        """In a process that has its descriptors by a fork, too: it is another's there."""
        for end in (self.answers, self._large, self._output):
            os.close(end)

    def reap(self, options: int) -> int | None:
        """The exit code, if it has ended (negative: a signal); None: it has not. 0 also if somebody
        else has taken it."""
        if self._code is None:
            try:
                ended, status = os.waitpid(self.pid, options)
            except ChildProcessError:
                self._code = 0
            else:
                self._code = os.waitstatus_to_exitcode(status) if ended else None
        return self._code

    def reap_soon(self) -> int | None:
        """As `reap`, of one that is about to end; None: it is not."""
        for _ in range(SOON):
            if (code := self.reap(os.WNOHANG)) is not None:
                return code
            time.sleep(0.001)
        return None

    def stop(self) -> None:
        """It does nothing more until SIGCONT, if it has not ended."""
        send(self.pid, signal.SIGSTOP)
        with contextlib.suppress(ChildProcessError):
            _, status = os.waitpid(self.pid, os.WUNTRACED)
            if not os.WIFSTOPPED(status):
                self._code = os.waitstatus_to_exitcode(status)

    def signal(self, how: signal.Signals) -> None:
        """To it and to all that descend from it: futures of its own, commands that it runs."""
        if self._code is not None:
            return
        tree: dict[int, str] = {}
        try:
            # Stopped, so that they begin no others meanwhile; one that was on its way is found by
            # the next look.
            while found := self._family().items() - tree.items():
                tree.update(found)
                for pid, _ in found:
                    send(pid, signal.SIGSTOP)
            for pid in tree:
                send(pid, how)
        finally:
            for pid in tree:
                send(pid, signal.SIGCONT)
        self._tree |= tree

    def _family(self) -> dict[int, str]:
        return {self.pid: began(self.pid), **descendants(self.pid)}

    def remains(self) -> list[int]:
        """What descended from it when it was killed and is still there."""
        return [pid for pid, when in self._tree.items() if pid != self.pid and began(pid) == when]

    def end_remains(self) -> None:
        for pid in self.remains():
            send(pid, signal.SIGKILL)


def send(pid: int, how: signal.Signals) -> None:
    """To a process that may have ended, or be somebody else's."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, how)


def began(pid: int) -> str:
    """When a process was made, in the kernel's ticks; empty: it is not there, or a zombie."""
    with contextlib.suppress(OSError):
        # After the name, which may have anything in it: state, …, start time.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "" if fields[0] == "Z" else fields[19]
    return ""


def descendants(pid: int) -> dict[int, str]:
    """The processes that a process has begun and those of these, as far as they are alive."""
    found: dict[int, str] = {}
    # It may end meanwhile, and each of its threads.
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                for one in map(int, thread.read_text().split()):
                    if when := began(one):
                        found |= {one: when, **descendants(one)}
    return found


def why_none(code: int | None, said: str) -> str:
    """Why a child has no answer, from its exit code (None: it goes on) and what it has printed."""
    if code is None:
        how = "has become another program, or closed what it answers by,"
    elif code < 0:
        how = f"was ended by {signal_name(-code)}"
    else:
        how = f"exited with status {code}"
    last = f"; it said last: {said.strip().splitlines()[-1]}" if said.strip() else ""
    return f"its process {how} before it had an answer{last}"


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        # Of real time, most of which have no names.
        return f"signal {number}"


def from_file(file: int, length: int, lengths: list[int]) -> tuple[memoryview, list[memoryview]]:
    """The pickle and its buffers, from a file in memory, which stays mapped as long as they are
    used."""
    size = os.fstat(file).st_size
    # A copy on write: what a later child does to the result it does to its own.
    mapped = memoryview(mmap.mmap(file, size, access=mmap.ACCESS_COPY))
    begins = children.places(length, lengths)
    views = [mapped[at : at + size] for at, size in zip(begins, [length, *lengths], strict=True)]
    return views[0], views[1:]
