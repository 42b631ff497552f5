"""What environments have in common whose futures run in other processes."""

from __future__ import annotations

import collections
import contextlib
import threading
from typing import Any

from deconvoy.futures.environment import ALIVE, Environment, Hook
from deconvoy.futures.future import future


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

    @property
    def before_start_hooks(self) -> list[Hook]:
        return self._before

    @property
    def after_finish_hooks(self) -> list[Hook]:
        return self._after

    def _take_finished(self) -> future[Any] | None:
        with self._lock:
            return self._finished.popleft() if self._finished else None

    def _forget(self, one: future[Any]) -> None:
        with self._lock, contextlib.suppress(ValueError):
            self._finished.remove(one)

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
