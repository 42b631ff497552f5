"""Futures on threads of this process: shared memory, and next to no overhead."""

from __future__ import annotations

import itertools
import threading
import weakref
from typing import Any

from deconvoy import _native
from deconvoy.futures.environment import ALIVE, Environment, Hook, checked_limit
from deconvoy.futures.errors import FutureLost
from deconvoy.futures.future import future

# A worker that has nothing to do stays so long, in seconds (the source library's).
IDLE_S = 30.0

_numbers = itertools.count(1)


class ThreadEnvironment(_native.ThreadPool, Environment):
    """Futures run on threads, `max_threads` of them at a time, and in whoever touches one that
    nobody has begun.

    `idle_s`: how long a thread stays that has nothing to do, in seconds. `stuck`: threads that
    still run a future that was killed: a call in C cannot be interrupted. Each has been replaced.
    """

    kind = "thread"

    def __new__(
        cls, max_threads: int | None = None, *, idle_s: float = IDLE_S
    ) -> ThreadEnvironment:
        hooks: tuple[list[Hook], list[Hook]] = [], []
        made: ThreadEnvironment = super().__new__(cls, checked_limit(max_threads), idle_s, *hooks)
        return made

    def __init__(self, max_threads: int | None = None, *, idle_s: float = IDLE_S) -> None:
        self._idle_s = idle_s
        self._workers: weakref.WeakSet[threading.Thread] = weakref.WeakSet()
        ALIVE.add(self)

    def _make_worker(self) -> None:
        """Raises RuntimeError when no thread can be made."""
        # Whoever takes it has the place: the thread, or this one if it cannot begin.
        place = threading.Lock()

        def works() -> None:
            if place.acquire(blocking=False):
                self._work()

        thread = threading.Thread(target=works, name=f"future-{next(_numbers)}", daemon=True)
        self._workers.add(thread)
        try:
            thread.start()
        except BaseException:
            if place.acquire(blocking=False):
                self._leave()
            raise

    def another(self) -> ThreadEnvironment:
        return self._with_my_hooks(ThreadEnvironment(self.max_threads, idle_s=self._idle_s))

    def kill(self, one: future[Any], force: bool = False) -> bool:
        """Ends it as killed; whether it was not over. The thread that runs it is told by an
        asynchronous exception, and another one takes its place. `force` has no more to give
        here."""
        return one._kill()

    def join(self) -> None:
        """Waits for the threads to end, but for those that are stuck; for after `shutdown`."""
        while True:
            alive = [thread for thread in list(self._workers) if thread.is_alive()]
            if len(alive) <= self.stuck:
                return
            alive[0].join(0.05)

    def _forked(self) -> None:
        for one in self._after_fork():
            one._lose(FutureLost("it ran in the parent process when this one was forked"))


def at_exit() -> None:
    """All that was begun is done, as `concurrent.futures` has it."""
    environments = [one for one in list(ALIVE) if isinstance(one, ThreadEnvironment)]
    for one in environments:
        one._close()
    for one in environments:
        one.join()


# Before threads are waited for, at the end of the interpreter.
threading._register_atexit(at_exit)  # type: ignore[attr-defined]
