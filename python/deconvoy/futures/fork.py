"""Futures on forks: one child process a future, with the parent's memory as it is at the call.

A child is forked at the call, whatever else runs, so that it sees the state of that moment; it
waits until it has a place to run, by taking a byte from a pipe that has as many as may run. Nobody
in the parent has to look for that. Answers are taken in by whoever waits; a thread does it only
where somebody is to be called back.
"""

from __future__ import annotations

import array
import atexit
import collections
import contextlib
import fcntl
import functools
import mmap
import os
import pickle
import select
import signal
import socket
import sys
import termios
import threading
import time
import warnings
import weakref
from collections.abc import Callable
from typing import Any

from deconvoy.futures import child as children
from deconvoy.futures.environment import ALIVE, Environment, Hook, checked_limit
from deconvoy.futures.errors import FutureKilled, FutureLost
from deconvoy.futures.future import future

# Children that wait for a place to run, at most; who makes more waits until there are fewer.
MOST_WAITING = 256

# So often it is looked for places that were lost, while there may be any, in seconds.
AUDIT_S = 0.02

# After a child was killed that waited for a place: so many times, a millisecond apart.
MOST_LOOKS, FEW_LOOKS = 20, 3

# A child that was killed and does not end gets SIGKILL after so many seconds, when somebody looks.
PATIENCE_S = 1.0


# What is done with nothing locked: it calls others.
Settle = Callable[[], None]


class Child:
    """A child process, as its parent sees it."""

    def __init__(self, one: future[Any], pid: int, answers: socket.socket, output: int) -> None:
        self.future = one
        self.pid = pid
        self.answers = answers
        self.output = output
        self.received = bytearray()
        self.files: list[int] = []
        self.has_started = False
        # Its place to run was given back for it.
        self.is_replaced = False
        self.killed_at: float | None = None


class ForkEnvironment(Environment):
    """Futures run in children of this process, `max_threads` of them at a time.

    What a child prints is kept: `environment.output(future)`. A future that prints to a terminal by
    other means than the descriptors 1 and 2 does so.
    """

    kind = "fork"

    def __init__(self, max_threads: int | None = None) -> None:
        self._limit = checked_limit(max_threads)
        self._before: list[Hook] = []
        self._after: list[Hook] = []
        self._begin()
        ALIVE.add(self)

    def _begin(self) -> None:
        self._lock = threading.RLock()
        self._children: dict[int, Child] = {}
        self._of: weakref.WeakKeyDictionary[future[Any], Child] = weakref.WeakKeyDictionary()
        self._outputs: weakref.WeakKeyDictionary[future[Any], str] = weakref.WeakKeyDictionary()
        self._dying: list[Child] = []
        self._finished: collections.deque[future[Any]] = collections.deque()
        self._settles: collections.deque[Settle] = collections.deque()
        self._tokens: tuple[int, int] | None = None
        self._taker = -1
        # Places that are to be taken away as soon as they are given back.
        self._excess = 0
        # A child was killed that may have had a place: so many were missing when that was looked
        # at.
        self._lost_place: int | None = None
        self._looker: threading.Thread | None = None
        # Threads that look.
        self._looking = 0

    def another(self) -> ForkEnvironment:
        made = ForkEnvironment(self._limit)
        made.before_start_hooks.extend(self.before_start_hooks)
        made.after_finish_hooks.extend(self.after_finish_hooks)
        return made

    # Settings.

    @property
    def max_threads(self) -> int:
        return self._limit

    @max_threads.setter
    def max_threads(self, limit: int) -> None:
        limit = checked_limit(limit)
        with self._lock:
            if self._tokens is not None:
                if limit > self._limit:
                    self._give(limit - self._limit)
                else:
                    self._excess += self._limit - limit
                    self._take_excess()
            self._limit = limit

    @property
    def before_start_hooks(self) -> list[Hook]:
        return self._before

    @property
    def after_finish_hooks(self) -> list[Hook]:
        return self._after

    @property
    def counts(self) -> tuple[int, int]:
        self._look(0)
        with self._lock:
            alive = len(self._children)
            return min(alive, self._limit), max(alive - self._limit, 0)

    def output(self, one: future[Any]) -> str:
        """What the child of a future has printed so far, on its standard output and error."""
        with self._lock:
            mine = self._of.get(one)
            return self._outputs.get(one, "") if mine is None else read_output(mine.output)

    # Places to run.

    def _make_tokens(self) -> tuple[int, int]:
        if self._tokens is None:
            self._tokens = os.pipe()
            # Another way to the same end, by which this process takes what is there and never
            # waits.
            flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
            self._taker = os.open(f"/proc/self/fd/{self._tokens[0]}", flags)
            self._give(self._limit)
        return self._tokens

    def _give(self, count: int) -> None:
        taken_back = min(count, self._excess)
        self._excess -= taken_back
        if self._tokens is not None and count > taken_back:
            os.write(self._tokens[1], b"." * (count - taken_back))

    def _take_excess(self) -> None:
        """Takes away what places are free and not wanted any more."""
        while self._excess and self._take():
            self._excess -= 1

    def _take(self) -> bool:
        """Takes a place, if one is free."""
        if self._tokens is None:
            return False
        with contextlib.suppress(BlockingIOError):
            return bool(os.read(self._taker, 1))
        return False

    def _drop_tokens(self) -> None:
        if self._tokens is not None:
            for end in (*self._tokens, self._taker):
                os.close(end)
            self._tokens, self._excess, self._lost_place = None, 0, None

    def _missing(self) -> int:
        """How many places neither a child has that has said so, nor anybody can take."""
        if self._tokens is None:
            return 0
        free = array.array("i", [0])
        fcntl.ioctl(self._tokens[0], termios.FIONREAD, free)
        taken = sum(one.has_started for one in self._children.values())
        return self._limit + self._excess - free[0] - taken

    def _audit(self) -> None:
        """Makes good for a place whose child ended before it could say that it had it: one that is
        missing twice in a row."""
        missing = self._missing()
        if missing > 0 and missing != self._lost_place:
            self._lost_place = missing
            return
        if missing > 0:
            self._give(missing)
        self._lost_place = None

    def _find_places(self) -> None:
        """The same at once, after a child was killed that waited for a place."""
        nothing = 0
        for _ in range(MOST_LOOKS):
            self._look(0)
            with self._lock:
                if self._lost_place is None:
                    return
                # One that has just given its place back, and whose answer is still to be taken in,
                # is counted twice; one that is on its way to a child is not counted.
                nothing = nothing + 1 if self._missing() <= 0 else 0
                if nothing == FEW_LOOKS:
                    self._lost_place = None
                    return
            time.sleep(0.001)
        with self._lock:
            self._lost_place = self._missing()
            self._audit()

    # Starting.

    def _start(self, one: future[Any]) -> None:
        self._look(0)
        while len(self._children) >= MOST_WAITING + self._limit:
            self._look(None)
        with self._lock:
            tokens = self._make_tokens()
            taken = one._take_body()
            if taken is None:
                return
            call, keywords, context = taken
            mine, its = socket.socketpair()
            output = os.memfd_create("deconvoy-output", os.MFD_CLOEXEC)
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(Exception):
                    stream.flush()
            # Whoever comes first has a place first.
            has_place = self._take()
            try:
                pid = os.fork()
            except OSError as error:
                self._give(int(has_place))
                for end in (mine, its):
                    end.close()
                os.close(output)
                one._fail(FutureLost(f"no process could be made: {error.strerror}"))
                return
            if pid == 0:
                mine.detach()
                hooks = self.before_start_hooks, self.after_finish_hooks
                run = functools.partial(*call, **keywords)
                body = functools.partial(hooked, one, run, *hooks)
                children.run(context, body, its, output, tokens, has_place)
            its.close()
            mine.setblocking(False)
            made = Child(one, pid, mine, output)
            if has_place:
                made.has_started = True
                one._begin()
            self._children[mine.fileno()] = made
            self._of[one] = made

    # Looking.

    def _look(self, timeout: float | None, only: Child | None = None) -> None:
        """Takes in what there is to take in; waits for it, at most `timeout` seconds (None: as
        long as it takes). Nothing is locked while futures are settled, which calls others."""
        self._looking += 1
        try:
            self._take_in_ready(timeout, only)
        finally:
            self._looking -= 1
        self._settle_all()

    def _settle_all(self) -> None:
        """Settles what was taken in, whoever has."""
        while self._settles:
            try:
                settle = self._settles.popleft()
            except IndexError:
                return
            try:
                settle()
            except BaseException:
                # Of this thread, not of the future: another time.
                self._settles.appendleft(settle)
                raise

    def _take_in_ready(self, timeout: float | None, only: Child | None) -> None:
        with self._lock:
            wanted = list(self._children)
            if only is not None:
                descriptor = only.answers.fileno()
                if self._children.get(descriptor) is not only:
                    # Another thread has taken its answer in.
                    return
                if only.has_started:
                    wanted = [descriptor]
        if not wanted:
            self._bury()
            return
        if self._lost_place is not None or self._dying or self._looking > 1:
            # Another thread may take in what this one waits for, and there may be a place to find.
            timeout = AUDIT_S if timeout is None else min(timeout, AUDIT_S)
        poll = select.poll()
        for descriptor in wanted:
            poll.register(descriptor, select.POLLIN)
        ready = poll.poll(None if timeout is None else max(timeout, 0) * 1000)
        with self._lock:
            if not ready and timeout == AUDIT_S and self._lost_place is not None:
                self._audit()
            for descriptor, _ in ready:
                # Another thread may have been quicker.
                if (one := self._children.get(descriptor)) is not None:
                    self._settles += self._receive(one)
        self._bury()

    def _receive(self, one: Child) -> list[Settle]:
        while True:
            try:
                data, files, _, _ = socket.recv_fds(one.answers, 1 << 16, 4)
            except BlockingIOError:
                return []
            except ConnectionResetError:
                data, files = b"", []
            one.files += files
            one.received += data
            if (settle := self._take_in(one)) is not None:
                return [settle]
            if not data:
                return [self._ended(one)]

    def _take_in(self, one: Child) -> Settle | None:
        """What settles its future, if a whole answer was there."""
        head = children.HEAD
        while len(one.received) >= head.size:
            kind, length, count = head.unpack_from(one.received)
            if kind == children.STARTED:
                one.has_started = True
                one.future._begin()
                del one.received[: head.size]
                continue
            begin = head.size + count * children.LENGTH.size
            if len(one.received) < begin:
                return None
            lengths = [
                children.LENGTH.unpack_from(one.received, head.size + place * 8)[0]
                for place in range(count)
            ]
            total = length + sum(lengths)
            if total >= children.LARGE:
                return self._answered(one, kind, *from_file(one.files.pop(), length, lengths))
            if len(one.received) < begin + total:
                return None
            view = memoryview(bytes(one.received))[begin:]
            buffers, end = [], length
            for size in lengths:
                buffers.append(bytearray(view[end : end + size]))
                end += size
            return self._answered(one, kind, view[:length], buffers)
        return None

    def _answered(self, one: Child, kind: bytes, data: Any, buffers: list[Any]) -> Settle:
        # It gives its place back itself, and ends.
        self._leaves(one)
        reap(one.pid, 0)
        self._finished.append(one.future)
        return functools.partial(self._settle, one, kind, data, buffers)

    def _settle(self, one: Child, kind: bytes, data: Any, buffers: list[Any]) -> None:
        try:
            content, told = pickle.loads(data, buffers=buffers)
        except FutureKilled:
            raise
        except Exception as error:
            self._settle_error(one, FutureLost(f"its answer cannot be read: {error}"))
            return
        for category, text, file, line in told:
            with contextlib.suppress(Warning):
                warnings.warn_explicit(text, category, file, line)
        if kind == children.VALUE:
            if not one.future._settle(content):
                self._forget(one.future)
            return
        failure: children.Failure = content
        if failure.traceback:
            failure.error.__cause__ = children.RemoteTraceback(failure.traceback)
        self._settle_error(one, failure.error)

    def _settle_error(self, one: Child, error: BaseException) -> None:
        if not one.future._fail(error):
            self._forget(one.future)

    def _ended(self, one: Child) -> Settle:
        """It has closed its end without an answer."""
        self._leaves(one)
        code = reap(one.pid, 0) or 0
        self._replace(one)
        how = f"exited with status {code}"
        if code < 0:
            how = f"was ended by {signal.Signals(-code).name}"
        why = f"its process {how} before it had an answer"
        if last := self._outputs.get(one.future, "").strip():
            why += f"; it said last: {last.splitlines()[-1]}"
        self._finished.append(one.future)
        return functools.partial(self._settle_error, one, FutureLost(why))

    def _replace(self, one: Child) -> None:
        """Gives back the place of a child that does not do it itself."""
        if one.has_started and not one.is_replaced:
            one.is_replaced = True
            self._give(1)
        elif not one.has_started:
            self._lost_place = 0
        if not self._children and not self._dying and self._tokens is not None:
            # Nobody has one: how many there are is certain again.
            self._drop_tokens()

    def _leaves(self, one: Child) -> None:
        self._children.pop(one.answers.fileno(), None)
        self._of.pop(one.future, None)
        self._outputs[one.future] = read_output(one.output)
        # Another thread may wait for it.
        with contextlib.suppress(OSError):
            one.answers.shutdown(socket.SHUT_RDWR)
        one.answers.close()
        os.close(one.output)
        for file in one.files:
            os.close(file)
        one.files.clear()

    def _bury(self) -> None:
        """Reaps those that were killed."""
        if not (self._dying or self._excess):
            return
        with self._lock:
            for one in list(self._dying):
                code = reap(one.pid, os.WNOHANG)
                if code is None:
                    if one.killed_at and time.monotonic() > one.killed_at + PATIENCE_S:
                        os.kill(one.pid, signal.SIGKILL)
                    continue
                self._dying.remove(one)
                if code == 0:
                    # It had an answer after all, and has given back a place that was given back
                    # before.
                    self._excess += 1
                self._replace(one)
            self._take_excess()

    # What an environment is asked.

    def kill(self, one: future[Any], force: bool = False) -> bool:
        """Ends it as killed; whether it was not over. Its process gets SIGTERM, or SIGKILL with
        `force` or if it is still there a second later."""
        self._look(0)
        with self._lock:
            mine = self._of.get(one)
            if mine is not None:
                self._end(mine, signal.SIGKILL if force else signal.SIGTERM)
        was_alive = one._kill()
        if self._lost_place is not None:
            self._find_places()
        return was_alive

    def _end(self, one: Child, how: signal.Signals) -> None:
        if one.has_started:
            os.kill(one.pid, how)
            one.killed_at = time.monotonic()
            self._leaves(one)
            self._dying.append(one)
            one.is_replaced = True
            self._give(1)
            return
        # It waits for a place, or has one since a moment ago: what it has said of that is read
        # when it says no more.
        os.kill(one.pid, signal.SIGKILL)
        code = reap(one.pid, 0)
        with contextlib.suppress(OSError):
            one.has_started = one.answers.recv(1) == children.STARTED
        # One that has ended well has given its place back.
        one.is_replaced = code == 0
        self._leaves(one)
        self._replace(one)

    def _wait(self, one: future[Any], timeout: float | None) -> None:
        deadline = None if timeout is None else time.monotonic() + timeout
        while not one._done_already():
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left < 0:
                raise TimeoutError
            mine = self._of.get(one)
            if mine is None and not one._done_already():
                # Its answer was taken in, and somebody is to settle it.
                self._settle_all()
                time.sleep(0)
                continue
            self._look(left, mine)

    def _wait_any(self, timeout: float | None) -> bool:
        if timeout is not None and timeout < 0:
            raise TimeoutError
        # What was taken in meanwhile is not waited for.
        if not self._finished:
            self._look(timeout)
        return bool(self._children or self._finished)

    def _take_finished(self) -> future[Any] | None:
        with self._lock:
            return self._finished.popleft() if self._finished else None

    def _forget(self, one: future[Any]) -> None:
        with self._lock, contextlib.suppress(ValueError):
            self._finished.remove(one)

    def _unfinished(self) -> list[future[Any]]:
        self._look(0)
        with self._lock:
            alive = sorted(self._children.values(), key=lambda one: not one.has_started)
            return [one.future for one in alive]

    def _withdrawn(self, one: future[Any]) -> None:
        """It was cancelled or killed before it had a place."""
        with self._lock:
            if (mine := self._of.get(one)) is not None:
                self._end(mine, signal.SIGKILL)
        if self._lost_place is not None:
            self._find_places()

    def _watched(self, _: future[Any]) -> None:
        """Somebody is to be told of the end of one: a thread looks for it."""
        with self._lock:
            if self._looker is None:
                self._looker = threading.Thread(
                    target=self._look_on, name="future-forks", daemon=True
                )
                self._looker.start()

    def _look_on(self) -> None:
        while True:
            with self._lock:
                if not self._children and not self._settles:
                    self._looker = None
                    return
            # Those that are made meanwhile are not among those that it waits for.
            self._look(0.01)

    def _close(self) -> None:
        with self._lock:
            for one in self._dying:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(one.pid, signal.SIGKILL)
                reap(one.pid, 0)
            self._dying.clear()
            if not self._children:
                self._drop_tokens()

    def _forked(self) -> None:
        for one in list(self._children.values()):
            # The parent's end is not ours, and neither is the child.
            one.answers.close()
            os.close(one.output)
            one.future._lose(FutureLost("it ran beside this process, in one of the same parent"))
        self._begin()


def reap(pid: int, options: int) -> int | None:
    """The exit code of a child that has ended (negative: a signal); None: it has not. 0 also if
    somebody else has taken it."""
    try:
        ended, status = os.waitpid(pid, options)
    except ChildProcessError:
        return 0
    return os.waitstatus_to_exitcode(status) if ended else None


def hooked(one: future[Any], run: Any, before: list[Any], after: list[Any]) -> Any:
    one._begin()
    for hook in before:
        hook(one)
    try:
        return run()
    finally:
        for hook in after:
            hook(one)


def read_output(descriptor: int) -> str:
    size = os.fstat(descriptor).st_size
    return os.pread(descriptor, size, 0).decode(errors="replace") if size else ""


def from_file(file: int, length: int, lengths: list[int]) -> tuple[memoryview, list[memoryview]]:
    """The pickle and its buffers, from a file in memory, which is closed and stays mapped as long
    as they are used."""
    size = os.fstat(file).st_size
    mapped = memoryview(mmap.mmap(file, size))
    os.close(file)
    begins = children.places(length, lengths)
    views = [mapped[at : at + size] for at, size in zip(begins, [length, *lengths], strict=True)]
    return views[0], views[1:]


@atexit.register
def at_exit() -> None:
    """All that was begun is done, and no child is left."""
    for one in list(ALIVE):
        if isinstance(one, ForkEnvironment):
            with contextlib.suppress(Exception):
                one.wait_for_all(None)
            one._close()
