"""What environments have in common whose futures run in other processes."""

from __future__ import annotations

import collections
import contextlib
import threading
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from deconvoy.futures.environment import ALIVE, Environment, Hook
from deconvoy.futures.errors import FutureLost
from deconvoy.futures.future import future

# Ends a future, with nothing locked, since that calls others; whether it was not over.
Settle = Callable[[], bool]


class Elsewhere(Environment):
    """Hooks, what has finished, and the end of the interpreter."""

    def __init__(self) -> None:
        self._before: list[Hook] = []
        self._after: list[Hook] = []
        self._begin()
        ALIVE.add(self)

    def _begin(self) -> None:
        """As new; also in a forked child."""
        self._lock = threading.RLock()
        # Those that nobody has asked for, in the order of finishing.
        self._finished: collections.deque[future[Any]] = collections.deque()
        # What is to be settled; by whoever comes by.
        self._settles: collections.deque[Callable[[], None]] = collections.deque()

    @property
    def before_start_hooks(self) -> list[Hook]:
        return self._before

    @property
    def after_finish_hooks(self) -> list[Hook]:
        return self._after

    def _take_finished(self) -> future[Any] | None:
        with self._lock:
            one = self._finished.popleft() if self._finished else None
        if one is not None and not one._done_already():
            # A moment before it is.
            self._wait(one, None)
        return one

    @abstractmethod
    def _wait(self, one: future[Any], timeout: float | None) -> None: ...

    def _holds_back(self, one: future[Any]) -> bool:
        """Whether it has not begun. It does not any more then: it is about to be cancelled."""
        return True

    def _forget(self, one: future[Any]) -> None:
        with self._lock, contextlib.suppress(ValueError):
            self._finished.remove(one)

    def _settle_all(self) -> None:
        """Settles what was taken in, whoever has."""
        while self._settles:
            settle = None
            try:
                settle = self._settles.popleft()
                settle()
            except BaseException as error:
                if settle is not None:
                    # Of this thread, not of the future: another time.
                    self._settles.appendleft(settle)
                elif isinstance(error, IndexError):
                    # Another thread was quicker.
                    return
                raise

    def _settle(self, one: future[Any], settle: Settle) -> None:
        try:
            was_first = settle()
        except Exception as error:
            was_first = one._fail(FutureLost(f"what came of it cannot be told: {error!r}"))
        if not was_first:
            self._forget(one)

    def _finish(self) -> None:
        """At the end of the interpreter: all that was begun is done, and nothing is left behind."""
        with contextlib.suppress(Exception):
            self.wait_for_all(None)
        self._close()


def finish(kind: type[Elsewhere]) -> None:
    """All environments of that kind."""
    for one in list(ALIVE):
        if isinstance(one, kind):
            one._finish()
