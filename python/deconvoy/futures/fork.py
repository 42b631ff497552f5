"""Futures on forks: one child process a future, with the parent's memory as it is at the call.

A child is forked at the call, whatever else runs, so that it sees the state of that moment; it
waits until it has a place to run, by taking a byte from a pipe that has as many as may run. Nobody
in the parent has to look for that. Answers are taken in by whoever waits; a thread does it only
where somebody is to be called back.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import signal
import threading
import time
from typing import Any

from deconvoy import _native
from deconvoy.futures import child as children
from deconvoy.futures.answers import Child, send
from deconvoy.futures.beginning import begin
from deconvoy.futures.elsewhere import Elsewhere, Settle, finish
from deconvoy.futures.environment import checked_limit
from deconvoy.futures.errors import FutureLost
from deconvoy.futures.future import future
from deconvoy.futures.lookout import OFTEN_S, Lookout
from deconvoy.futures.places import Places, most_waiting

# After a child was killed that waited for a place: so many times, a millisecond apart.
MOST_LOOKS, FEW_LOOKS = 20, 3

# A child that was killed and does not end gets SIGKILL after so many seconds, when somebody looks.
PATIENCE_S = 1.0


# Of a future, in its attributes: its child as long as there is one, then what that has printed.
CHILD, SAID = "_child", "_said"


class ForkEnvironment(Elsewhere):
    """Futures run in children of this process, `max_threads` of them at a time.

    What a child prints is kept: `environment.output(future)`. A future that prints to a terminal by
    other means than the descriptors 1 and 2 does so.
    """

    kind = "fork"

    def __init__(self, max_threads: int | None = None) -> None:
        self._places = Places(checked_limit(max_threads))
        self._parents: dict[int, Child] = {}
        super().__init__()

    def _begin(self) -> None:
        super()._begin()
        self._children: dict[int, Child] = {}
        self._dying: list[Child] = []
        self._places = Places(self._places.limit)
        self._looker: threading.Thread | None = None
        self._lookout = Lookout(self._lock)

    def another(self) -> ForkEnvironment:
        return self._with_my_hooks(ForkEnvironment(self._places.limit))

    # Settings.

    @property
    def max_threads(self) -> int:
        return self._places.limit

    @max_threads.setter
    def max_threads(self, limit: int) -> None:
        limit = checked_limit(limit)
        with self._lock:
            self._places.change(limit)

    @property
    def counts(self) -> tuple[int, int]:
        self._look(0)
        with self._lock:
            alive, limit = len(self._children), self._places.limit
            return min(alive, limit), max(alive - limit, 0)

    def output(self, one: future[Any]) -> str:
        """What the child of a future has printed so far, on its standard output and error."""
        with self._lock:
            mine = self._child_of(one)
            return str(one.__dict__.get(SAID, "") if mine is None else mine.output())

    def _child_of(self, one: future[Any]) -> Child | None:
        if self._parents:
            self._leave_parents()
        found: Child | None = one.__dict__.get(CHILD)
        return found

    # Places to run.

    def _taken(self) -> int:
        return sum(one.has_started for one in self._children.values())

    def _find_places(self) -> None:
        """Finds what places were lost, after a child was killed that waited for one."""
        nothing = 0
        for _ in range(MOST_LOOKS):
            self._look(0)
            with self._lock:
                if self._places.lost is None:
                    return
                # One that has just given its place back, and whose answer is still to be taken in,
                # is counted twice; one that is on its way to a child is not counted.
                nothing = nothing + 1 if self._places.missing(self._taken()) <= 0 else 0
                if nothing == FEW_LOOKS:
                    return
            time.sleep(0.001)
        with self._lock:
            self._places.make_good(self._places.missing(self._taken()))

    # Starting.

    def _start(self, one: future[Any]) -> None:
        self._look(0)
        limit = self._places.limit
        while len(self._children) >= limit + most_waiting(limit):
            with self._waiting():
                self._look(None)
        with self._lock:
            taken = one._take_body()
            if taken is None:
                return
            call, keywords, context = taken
            children.flush()
            body = functools.partial(
                children.hooked, one, call, keywords, self._before, self._after
            )
            try:
                begin(one, body, context, self._places, self._adopt, self._children.__contains__)
            except OSError as error:
                one._fail(FutureLost(f"no process could be made: {error.strerror}"))
            except BaseException:
                self._lookout.wake(0)
                raise

    def _adopt(self, made: Child) -> None:
        if made.has_started:
            made.future._begin()
        self._lookout.add(made.answers)
        made.future.__dict__[CHILD] = made
        self._children[made.answers] = made

    # Looking.

    def _look(self, timeout: float | None, only: Child | None = None) -> None:
        """Takes in what there is to take in; waits for it, at most `timeout` seconds (None: as
        long as it takes). Nothing is locked while futures are settled, which calls others."""
        if self._parents:
            self._leave_parents()
        with self._lookout.looks() as is_first:
            self._take_in_ready(timeout, only, is_first)
        self._settle_all()

    def _take_in_ready(self, timeout: float | None, only: Child | None, is_first: bool) -> None:
        descriptor = None
        if only is not None:
            if self._children.get(only.answers) is not only:
                # Another thread has taken its answer in.
                return
            if only.has_started:
                descriptor = only.answers
        if not self._children:
            self._bury()
            return
        if self._places.lost is not None or self._dying:
            timeout = OFTEN_S if timeout is None else min(timeout, OFTEN_S)
        ready = self._lookout.wait(timeout, descriptor, is_first)
        with self._lock:
            for descriptor in ready:
                # Another thread may have been quicker.
                if (one := self._children.get(descriptor)) is not None:
                    self._receive(one)
            if self._places.lost is not None:
                self._places.audit(self._taken())
        self._bury()

    def _receive(self, one: Child) -> None:
        had_started = one.has_started
        has_ended, answer, why = one.hear()
        if one.has_started and not had_started and self._places.missing(self._taken()) < 0:
            # Its place had been taken for lost.
            self._places.lost = 0
        if not has_ended:
            return
        settle: Settle
        if answer is not None:
            # It gives its place back itself, and ends.
            settle = functools.partial(answer.settle, one.future)
        else:
            settle = functools.partial(one.future._fail, FutureLost(why))
        # Among the finished before it is over, and both before it leaves: a signal may come in
        # between.
        self._finished.append(one.future)
        self._settles.append(functools.partial(self._settle, one.future, settle))
        self._leaves(one)
        if answer is not None:
            one.reap(0)
        else:
            # If it goes on without the means to answer, it is not waited for.
            one.signal(signal.SIGKILL)
            self._dying.append(one)
            self._replace(one)
        self._lookout.wake(1)

    def _replace(self, one: Child) -> None:
        """Gives back the place of a child that does not do it itself."""
        if one.has_started and not one.is_replaced:
            one.is_replaced = True
            self._places.give(1)
        elif not one.has_started:
            self._places.lost = 0
        if not self._children and not self._dying:
            # Nobody has one: how many there are is certain again.
            self._places.drop()

    def _leaves(self, one: Child) -> None:
        self._children.pop(one.answers, None)
        self._lookout.remove(one.answers)
        one.future.__dict__.pop(CHILD, None)
        one.future.__dict__[SAID] = one.output()
        one.close()

    def _bury(self) -> None:
        """Reaps those that were killed."""
        if not (self._dying or self._places.excess):
            return
        with self._lock:
            for one in list(self._dying):
                code = one.reap(os.WNOHANG)
                if code is None:
                    if time.monotonic() > one.killed_at + PATIENCE_S:
                        one.signal(signal.SIGKILL)
                    continue
                if one.remains():
                    if time.monotonic() > one.killed_at + PATIENCE_S:
                        one.end_remains()
                    continue
                self._dying.remove(one)
                # It may have had an answer after all, and have given back a place that was given
                # back for it.
                self._places.lost = 0
                self._replace(one)
            self._places.take_excess()

    # What an environment is asked.

    def kill(self, one: future[Any], force: bool = False) -> bool:
        """Ends it as killed; whether it was not over. Its process gets SIGTERM, or SIGKILL with
        `force` or if it is still there a second later."""
        self._look(0)
        with self._lock:
            mine = one.__dict__.get(CHILD)
            if mine is not None:
                self._end(mine, signal.SIGKILL if force else signal.SIGTERM)
        was_alive = one._kill()
        if self._places.lost is not None:
            self._find_places()
        return was_alive

    def _end(self, one: Child, how: signal.Signals) -> None:
        if one.has_started:
            one.signal(how)
            one.killed_at = time.monotonic()
            self._leaves(one)
            self._lookout.wake(0)
            self._dying.append(one)
            one.is_replaced = True
            self._places.give(1)
            return
        # It waits for a place, or has one since a moment ago: what it has said of that is read
        # when it says no more.
        one.signal(signal.SIGKILL)
        one.reap(0)
        with contextlib.suppress(BlockingIOError):
            one.has_started = os.read(one.answers, 1) == children.STARTED
        self._leaves(one)
        self._lookout.wake(0)
        self._replace(one)
        # It may have had an answer, and have given the place back, too.
        self._places.lost = 0

    def _wait(self, one: future[Any], timeout: float | None) -> None:
        deadline = None if timeout is None else time.monotonic() + timeout
        _native.blocks()
        try:
            while not one._done_already():
                left = None if deadline is None else deadline - time.monotonic()
                if (mine := self._child_of(one)) is not None:
                    self._look(left, mine)
                else:
                    # Its answer was taken in, and somebody is to settle it.
                    self._settle_all()
                    time.sleep(0)
                if left is not None and left <= 0 and not one._done_already():
                    raise TimeoutError
        finally:
            _native.unblocks()

    def _wait_any(self, timeout: float | None) -> bool:
        # What was taken in meanwhile is not waited for.
        if not self._finished:
            with self._waiting():
                self._look(timeout)
        if timeout is not None and timeout <= 0 and not self._finished:
            raise TimeoutError
        return bool(self._children or self._finished)

    def _wait_for(self, several: list[future[Any]], deadline: float | None) -> None:
        # For any of them: so they are taken in as they finish.
        left = None if deadline is None else deadline - time.monotonic()
        with self._waiting():
            self._look(left)
        if left is not None and left <= 0 and self._children:
            raise TimeoutError

    def _unfinished(self) -> list[future[Any]]:
        self._look(0)
        with self._lock:
            alive = sorted(self._children.values(), key=lambda one: not one.has_started)
            return [one.future for one in alive]

    def _holds_back(self, one: future[Any]) -> bool:
        """Whether it has not begun; it does not any more then."""
        self._look(0)
        with self._lock:
            mine = self._child_of(one)
            if mine is None or mine.has_started:
                return False
            mine.stop()
            self._receive(mine)
            has_begun = mine.has_started or mine.answers not in self._children
            if has_begun:
                send(mine.pid, signal.SIGCONT)
        self._settle_all()
        return not has_begun

    def _withdrawn(self, one: future[Any]) -> None:
        """It was cancelled or killed before it had a place."""
        with self._lock:
            if (mine := self._child_of(one)) is not None:
                self._end(mine, signal.SIGKILL)
        if self._places.lost is not None:
            self._find_places()

    def _watched(self, _: future[Any]) -> None:
        """Somebody is to be told of the end of one: a thread looks for it."""
        with self._lock:
            if self._looker is None:
                looker = threading.Thread(target=self._look_on, name="future-forks", daemon=True)
                looker.start()
                self._looker = looker

    def _look_on(self) -> None:
        try:
            while True:
                with self._lock:
                    if not self._children and not self._settles:
                        self._looker = None
                        return
                # It goes when there is nothing left to look for.
                self._look(0.1)
        except BaseException:
            self._looker = None
            raise

    def _close(self) -> None:
        with self._lock:
            for one in self._dying:
                one.signal(signal.SIGKILL)
                one.end_remains()
                one.reap(0)
            self._dying.clear()
            if not self._children:
                self._places.drop()
                self._lookout.close()

    def _forked(self) -> None:
        # Looked at when somebody does: each page that is touched now is copied for each future.
        self._parents = {**self._parents, **self._children} if self._parents else self._children
        self._begin()

    def _leave_parents(self) -> None:
        """The children of the parent are not ours, and what they had to say is not for us."""
        parents, self._parents = self._parents, {}
        for one in parents.values():
            one.close()
            one.future.__dict__.pop(CHILD, None)
            one.future._lose(FutureLost("it ran beside this process, in one of the same parent"))


atexit.register(finish, ForkEnvironment)
