"""What a child of a fork future does, and how its answer travels.

Over a pipe, in frames: a byte that says which, the length of a pickle (protocol 5), the number of
buffers beside it, the length of each, the pickle, the buffers. `STARTED`, which is empty, when it
has a place to run; at the end `VALUE` or `ERROR`. What is large follows in a file in memory, which
the child writes once and the parent maps.

After a fork each page of memory that is written to is copied first, and looking at an object of
Python's writes to it. So this does little, by few means: what is simple elsewhere (enumerations,
context managers, sockets, weak dictionaries) is half of the price of an empty future here.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _thread
import contextvars
import gc
import os
import pickle
import signal
import struct
import sys
import threading
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
LARGE = 1 << 15

# Of the build, also where it was told to use a GIL.
IS_FREE_THREADED = "t" in sys.abiflags

# Where a buffer begins in such a file: good for any element.
ALIGNED = 64


# What `signal.SIGTERM` and `signal.SIG_DFL` are.
_TERM, _DEFAULT = int(signal.SIGTERM), int(signal.SIG_DFL)

# What this process answers over and waits for a place by, if it is a child.
_mine: list[int] = []

# Held while a child is made; and the end of a pipe that it will answer over, by the thread that
# makes it.
making_lock = threading.RLock()
making: dict[int, int] = {}


def forked() -> None:
    """In any child: if what another one answers over stayed open here, its end would not be
    seen."""
    global making_lock
    making_lock = threading.RLock()
    while _mine:
        os.close(_mine.pop())
    mine = making.pop(_thread.get_ident(), None)
    for end in making.values():
        os.close(end)
    making.clear()
    if mine is not None:
        _mine.append(mine)


os.register_at_fork(after_in_child=forked)


class Ends(NamedTuple):
    """The child's descriptors: of the pipe that it answers over, of the file for what is large, and
    of that for what it prints."""

    answers: int
    large: int
    output: int


class Turn(NamedTuple):
    """The pipe with places to run, and whether the child has one already."""

    out: int
    into: int
    has_one: bool


# A warning: its category, text, file and line.
Told = tuple[type[Warning], str, str, int]


class Answer(NamedTuple):
    """What a child has to say beside its value or error."""

    content: Any
    warnings: list[Told]


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
            # Not by the class's own means: that may be frozen.
            BaseException.__setattr__(self.error, "__cause__", RemoteTraceback(self.traceback))
        return self.error


def run(
    call: Callable[[], Any],
    context: contextvars.Context,
    ends: Ends,
    turn: Turn,
    parent: int,
) -> None:
    """All that a child does: waits for a place to run, calls, answers, gives the place back,
    ends."""
    status = 1
    try:
        _mine.extend((turn.out, turn.into))
        # What is there now is looked at by no collection: it would be copied.
        if not IS_FREE_THREADED:
            gc.freeze()
        # The same by `signal` costs 40 pages.
        _signal.signal(_TERM, _DEFAULT)
        os.dup2(ends.output, 1)
        os.dup2(ends.output, 2)
        sys.stdout, sys.stderr = by_lines(sys.stdout, 1), by_lines(sys.stderr, 2)
        into = turn.into if turn.has_one else waits_for_place(turn)
        if into is None or os.getppid() != parent:
            # Nobody wants the answer any more.
            return
        if not turn.has_one:
            os.write(ends.answers, HEAD.pack(STARTED, 0, 0))
        kind, answer = context.run(outcome, call)
        flush()
        send(ends, kind, answer)
        os.write(into, b".")
        status = 0
    finally:
        os._exit(status)


def waits_for_place(turn: Turn) -> int | None:
    """Where it is to be given back; None: the parent is gone, and all that had one.

    Who waits does not hold the end that is written to: when all that do have ended, in whatever
    way, there is nothing more to be read.
    """
    _mine.remove(turn.into)
    os.close(turn.into)
    if not os.read(turn.out, 1):
        return None
    into = os.open(f"/proc/self/fd/{turn.out}", os.O_WRONLY | os.O_CLOEXEC)
    _mine.append(into)
    return into


def hooked(
    one: Any, call: tuple[Any, ...], keywords: dict[str, Any], before: list[Any], after: list[Any]
) -> Any:
    """Runs a future's function, and the hooks around it."""
    one._begin()
    try:
        for hook in before:
            hook(one)
        value = call[0](*call[1:], **keywords)
        if one.environment._children:
            # What it has begun and nobody has waited for is done, too.
            one.environment.wait_for_all(None)
        return value
    finally:
        for hook in after:
            try:
                hook(one)
            except Exception:
                # As on threads: it is told, and the result stands.
                traceback.print_exc()


def outcome(call: Callable[[], Any]) -> tuple[bytes, Answer]:
    told: list[Told] = []

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: Any = None,
        line: str | None = None,
    ) -> None:
        told.append((category, str(message), filename, lineno))

    warnings.showwarning = show
    try:
        return VALUE, Answer(call(), told)
    except SystemExit as error:
        lost = FutureLost(f"it called sys.exit({error.code!r})")
        return ERROR, Answer(failure(lost, error), told)
    except BaseException as error:
        return ERROR, Answer(failure(error, error), told)


def failure(
    error: BaseException,
    where: BaseException,
    dumps: Callable[[BaseException], bytes] = pickle.dumps,
) -> Failure:
    """An error that can be sent: itself if it comes back as what it is, else what it says."""
    # Not the frame in here.
    lines = traceback.format_exception(type(where), where, tail(where))
    try:
        copy = pickle.loads(dumps(error))
        if type(copy) is not type(error):
            raise TypeError(f"it comes back as {type(copy).__qualname__}")
    except Exception as why:
        try:
            text = str(error)
        except Exception:
            text = "…"
        error = FutureError(f"{type(error).__qualname__}: {text} (which cannot be pickled: {why})")
    return Failure(error, "".join(lines))


def tail(error: BaseException) -> Any:
    return error.__traceback__ and error.__traceback__.tb_next


def by_lines(present: Any, descriptor: int) -> Any:
    """A standard stream: what is there, if it writes to that descriptor; by lines, so that what
    commands print comes in between."""
    try:
        if present.fileno() == descriptor:
            if not present.line_buffering:
                present.reconfigure(line_buffering=True)
            return present
    except Exception:
        # It is no such stream.
        pass
    return open(descriptor, "w", buffering=1, errors="replace", closefd=False)


def flush() -> None:
    for one in (sys.stdout, sys.stderr):
        try:  # noqa: SIM105
            one.flush()
        except Exception:
            # A stream of the program's own.
            pass


def send(to: Ends, kind: bytes, answer: Answer) -> None:
    buffers: list[pickle.PickleBuffer] = []
    told = sendable(answer.warnings) if answer.warnings else []
    try:
        data = pickle.dumps((answer.content, told), 5, buffer_callback=buffers.append)
        views = [buffer.raw() for buffer in buffers]
    except Exception as why:
        what = type(answer.content).__qualname__
        error = FutureError(f"its result, a {what}, cannot be pickled: {why}")
        kind, buffers, views = ERROR, [], []
        data = pickle.dumps((Failure(error, ""), told), 5)
    lengths = [view.nbytes for view in views]
    head = HEAD.pack(kind, len(data), len(lengths))
    head += b"".join(LENGTH.pack(length) for length in lengths)
    if len(data) + sum(lengths) < LARGE:
        write_all(to.answers, memoryview(b"".join([head, data, *views])))
        return
    for place, view in zip(places(len(data), lengths), [memoryview(data), *views], strict=True):
        os.lseek(to.large, place, os.SEEK_SET)
        write_all(to.large, view)
    write_all(to.answers, memoryview(head))


def sendable(told: list[Told]) -> list[Told]:
    """Warnings; a category that cannot be sent becomes the one of Python's own that it is of."""
    try:
        pickle.dumps([category for category, *_ in told])
    except Exception:
        return [
            (
                next(one for one in category.__mro__ if one.__module__ == "builtins"),
                text,
                file,
                line,
            )
            for category, text, file, line in told
        ]
    return told


def places(length: int, lengths: Sequence[int]) -> list[int]:
    """Where the pickle and each buffer begin in a file in memory."""
    found, end = [0], length
    for one in lengths:
        begin = -(-end // ALIGNED) * ALIGNED
        found.append(begin)
        end = begin + one
    return found


def write_all(file: int, view: memoryview) -> None:
    view = view.cast("B") if view.nbytes and view.format != "B" else view
    written = 0
    while written < view.nbytes:
        written += os.write(file, view[written:])
