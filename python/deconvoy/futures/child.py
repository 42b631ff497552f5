"""What a child of a fork future does, and how its answer travels.

Over a socket, in frames: a byte that says which, a length, that many bytes. `STARTED` when it has a
place to run; at the end `VALUE` or `ERROR`, whose content is pickled (protocol 5); what is large
goes through a file in memory, whose descriptor is sent along: the child writes it once, the parent
maps it.
"""

from __future__ import annotations

import array
import contextlib
import contextvars
import gc
import os
import pickle
import signal
import socket
import struct
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from deconvoy.futures.errors import FutureError, FutureLost

STARTED, VALUE, ERROR = b"s", b"v", b"e"

# Which, how many bytes, how many buffers; after it the length of each buffer.
HEAD = struct.Struct("=cQI")
LENGTH = struct.Struct("=Q")

# What is larger goes through a file in memory, in bytes.
LARGE = 1 << 16

# Where a buffer begins in such a file: good for any element.
ALIGNED = 64


# What this process answers over, if it is a child.
_mine: list[socket.socket] = []


def forked() -> None:
    """In a child's child: if it stayed open here, the end of the child would not be seen."""
    for answers in _mine:
        answers.close()
    _mine.clear()


os.register_at_fork(after_in_child=forked)


class Answer(NamedTuple):
    """What a child has to say beside its value or error."""

    content: Any
    # Category, text, file and line of each warning.
    warnings: list[tuple[type[Warning], str, str, int]]


class RemoteTraceback(Exception):
    """The traceback of an error, as text: from another process."""

    def __str__(self) -> str:
        return f"\n\n{self.args[0]}"


class Failure(NamedTuple):
    error: BaseException
    traceback: str

    def with_traceback(self) -> BaseException:
        """The error, caused by its traceback as text."""
        if self.traceback:
            self.error.__cause__ = RemoteTraceback(self.traceback)
        return self.error


def run(
    context: contextvars.Context,
    call: Callable[[], Any],
    answers: socket.socket,
    output: int,
    parent: int,
    tokens: tuple[int, int],
    has_place: bool,
) -> None:
    """All that a child does: waits for a place to run, calls, answers, gives the place back,
    ends."""
    status = 1
    try:
        _mine.append(answers)
        # What is there now is looked at by no collection: it would be copied.
        if not is_free_threaded():
            gc.freeze()
        with contextlib.suppress(ValueError):
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.dup2(output, 1)
        os.dup2(output, 2)
        sys.stdout, sys.stderr = stream(sys.stdout, 1), stream(sys.stderr, 2)
        if not has_place:
            os.read(tokens[0], 1)
            if os.getppid() != parent:
                # Nobody wants the answer any more.
                return
            answers.sendall(HEAD.pack(STARTED, 0, 0))
        # What is caught of warnings is of a context, too, from Python 3.14 on.
        kind, answer = context.run(outcome, call)
        flush()
        send(answers, kind, answer)
        os.write(tokens[1], b".")
        status = 0
    finally:
        if status and os.getppid() != parent:
            # There is nobody to give it back; others that wait are to see that.
            os.write(tokens[1], b".")
        os._exit(status)


def is_free_threaded() -> bool:
    return not getattr(sys, "_is_gil_enabled", lambda: True)()


def outcome(call: Callable[[], Any]) -> tuple[bytes, Answer]:
    with warnings.catch_warnings(record=True) as caught:
        try:
            kind, content = VALUE, call()
        except SystemExit as error:
            lost = FutureLost(f"it called sys.exit({error.code!r})")
            kind, content = ERROR, failure(lost, error)
        except BaseException as error:
            kind, content = ERROR, failure(error, error)
    told = [(one.category, str(one.message), one.filename, one.lineno) for one in caught]
    return kind, Answer(content, told)


def failure(error: BaseException, where: BaseException) -> Failure:
    """An error that can be sent: itself if it comes back as what it is, else what it says."""
    # Not the frame in here.
    lines = traceback.format_exception(type(where), where, tail(where))
    try:
        pickle.loads(pickle.dumps(error))
    except Exception as why:
        says = f"{type(error).__qualname__}: {error} (which cannot be pickled: {why})"
        error = FutureError(says)
    return Failure(error, "".join(lines))


def tail(error: BaseException) -> Any:
    return error.__traceback__ and error.__traceback__.tb_next


def stream(present: Any, descriptor: int) -> Any:
    """A standard stream: what is there, if it writes to that descriptor; by lines, so that what
    commands print comes in between."""
    with contextlib.suppress(Exception):
        if present.fileno() == descriptor:
            present.reconfigure(line_buffering=True)
            return present
    return open(descriptor, "w", buffering=1, errors="replace", closefd=False)


def flush() -> None:
    for one in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            one.flush()


def send(to: socket.socket, kind: bytes, answer: Answer) -> None:
    buffers: list[pickle.PickleBuffer] = []
    try:
        data = pickle.dumps(tuple(answer), 5, buffer_callback=buffers.append)
        views = [buffer.raw() for buffer in buffers]
    except Exception as why:
        what = type(answer.content).__qualname__
        error = FutureError(f"its result, a {what}, cannot be pickled: {why}")
        kind, buffers, views = ERROR, [], []
        data = pickle.dumps((Failure(error, ""), answer.warnings), 5)
    lengths = [view.nbytes for view in views]
    head = HEAD.pack(kind, len(data), len(lengths))
    head += b"".join(LENGTH.pack(length) for length in lengths)
    if len(data) + sum(lengths) < LARGE:
        to.sendall(b"".join([head, data, *views]))
        return
    file = os.memfd_create("deconvoy-answer", os.MFD_CLOEXEC)
    for place, view in zip(places(len(data), lengths), [memoryview(data), *views], strict=True):
        os.lseek(file, place, os.SEEK_SET)
        write_all(file, view)
    ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [file]))]
    to.sendmsg([head], ancillary)


def places(length: int, lengths: Sequence[int]) -> list[int]:
    """Where the pickle and each buffer begin in a file in memory."""
    found, end = [0], length
    for one in lengths:
        begin = -(-end // ALIGNED) * ALIGNED
        found.append(begin)
        end = begin + one
    return found


def write_all(file: int, view: memoryview) -> None:
    view = view.cast("B") if view.nbytes else view
    written = 0
    while written < view.nbytes:
        written += os.write(file, view[written:])
