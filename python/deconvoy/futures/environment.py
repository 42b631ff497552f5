"""Where futures run: the present environment, and what is asked of every kind of them."""

from __future__ import annotations

import concurrent.futures
import contextlib
import contextvars
import os
import threading
import time
import weakref
from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, ParamSpec, TypeVar

from deconvoy import _native
from deconvoy.futures.errors import NoFutures
from deconvoy.futures.future import future

P = ParamSpec("P")
T = TypeVar("T")
E = TypeVar("E", bound="Environment")

Hook = Callable[[future[Any]], object]

# All that there are.
ALIVE: weakref.WeakSet[Environment] = weakref.WeakSet()

# Where there is no other: the default.
_present: contextvars.ContextVar[Environment] = contextvars.ContextVar("environment")


class Environment(concurrent.futures.Executor):
    """What runs futures, of one kind: `thread`, `fork` or `dask`. An executor.

    `counts`: how many futures have a place to run, and how many wait for one. `max_threads`: how
    many run at a time. `before_start_hooks`, `after_finish_hooks`: functions that are called with
    each future, where it runs.
    """

    # The name of the back end.
    kind: str

    @property
    @abstractmethod
    def counts(self) -> tuple[int, int]: ...

    @property
    @abstractmethod
    def before_start_hooks(self) -> list[Hook]: ...

    @property
    @abstractmethod
    def after_finish_hooks(self) -> list[Hook]: ...

    @property
    @abstractmethod
    def max_threads(self) -> int: ...

    @max_threads.setter
    @abstractmethod
    def max_threads(self, limit: int) -> None: ...

    def submit(
        self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> concurrent.futures.Future[T]:
        """A future of this environment.

        Raises RuntimeError when it was shut down.
        """
        if self.is_shut_down:
            raise RuntimeError("cannot make new futures after shutdown")
        made = future.__new__(future)
        made._start_in(self, fn, *args, **kwargs)
        return made

    is_shut_down = False

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """No more futures are submitted; waits for those that there are."""
        self.is_shut_down = True
        if cancel_futures:
            for one in self._unfinished():
                one.cancel()
        if wait:
            self.wait_for_all(None)
        self._close()

    def wait_for_any(self, timeout: float | None) -> future[Any]:
        """The next that finishes, in the order of finishing, of those that nobody has asked for.

        Raises NoFutures when there is none left, TimeoutError after `timeout` seconds.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            found = self._take_finished()
            if found is not None:
                return found
            if not self._unfinished():
                # One may have finished since.
                if (found := self._take_finished()) is not None:
                    return found
                raise NoFutures("no future is left to wait for")
            left = None if deadline is None else deadline - time.monotonic()
            if not self._wait_any(left) and (found := self._take_finished()) is None:
                raise NoFutures("no future is left that others do not wait for likewise")
            if found is not None:
                return found

    def wait_for_all(self, timeout: float | None) -> list[future[Any]]:
        """All that nobody has asked for, when all are over, in the order of finishing.

        Raises TimeoutError after `timeout` seconds; nothing is lost then.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while unfinished := self._unfinished():
            self._wait_for(unfinished, deadline)
        found = []
        while (over := self._take_finished()) is not None:
            found.append(over)
        return found

    def _wait_for(self, several: list[future[Any]], deadline: float | None) -> None:
        """Waits for these; or returns before, to be called again."""
        for one in several:
            wait(one, None if deadline is None else deadline - time.monotonic(), keep=True)

    def kill_all(self) -> int:
        """Kills all that are not over, forgets all that are; how many were killed."""
        killed = 0
        # Those that wait first: they would begin when others are killed.
        for one in reversed(self._unfinished()):
            killed += self.kill(one)
        while self._take_finished() is not None:
            pass
        return killed

    @abstractmethod
    def kill(self, one: future[Any], force: bool = False) -> bool:
        """Ends it as killed; whether it was not over."""

    @abstractmethod
    def another(self) -> Environment:
        """A new one with the same settings, and no futures."""

    def _with_my_hooks(self, made: E) -> E:
        made.before_start_hooks.extend(self.before_start_hooks)
        made.after_finish_hooks.extend(self.after_finish_hooks)
        return made

    # Of those that nobody has asked for, the one that finished first.
    @abstractmethod
    def _take_finished(self) -> future[Any] | None: ...

    # Those that run, then those that wait, but for what the calling thread itself runs.
    @abstractmethod
    def _unfinished(self) -> list[future[Any]]: ...

    @abstractmethod
    def _wait_any(self, timeout: float | None) -> bool: ...

    def _hurry(self) -> None:
        """Somebody waits for what has not begun."""

    @contextlib.contextmanager
    def _waiting(self) -> Iterator[None]:
        """The calling thread waits for its futures: if it is a worker, others work meanwhile."""
        _native.blocks()
        try:
            yield
        finally:
            _native.unblocks()

    @abstractmethod
    def _close(self) -> None: ...

    # In a child after a fork: forgets the parent's.
    @abstractmethod
    def _forked(self) -> None: ...


def wait(one: future[Any], timeout: float | None, keep: bool = False) -> None:
    """Waits until it is over. `keep`: it can still be waited for as one of any.

    Raises TimeoutError.
    """
    _native.wait_for(one, timeout, keep)


class Environments:
    """All that there are: the default, and those that `with_new_environment` has opened."""

    def __init__(self, default: Environment) -> None:
        self.default = default
        self.others: list[Environment] = []
        self._lock = threading.Lock()
        self._say()

    def _say(self) -> None:
        """With the lock held."""
        _native.set_environments(_present, self.default, len(self.others))

    def _add(self, environment: Environment) -> None:
        with self._lock:
            self.others.append(environment)
            self._say()

    def _remove(self, environment: Environment) -> None:
        with self._lock:
            self.others.remove(environment)
            self._say()

    def present(self) -> Environment:
        return _present.get(self.default) if self.others else self.default

    @contextlib.contextmanager
    def opened(self, environment: Environment) -> Iterator[Environment]:
        self._add(environment)
        token = _present.set(environment)
        ended_by: BaseException | None = None
        try:
            yield environment
        except BaseException as error:
            ended_by = error
            raise
        finally:
            present = _present.get()
            _present.reset(token)
            try:
                if not isinstance(ended_by, Exception | None):
                    # Ctrl-C, an exit, a kill: who does that does not wait.
                    present.kill_all()
                present.shutdown(cancel_futures=ended_by is not None)
            finally:
                self._remove(environment)

    @contextlib.contextmanager
    def within(self, environment: Environment) -> Iterator[None]:
        """It is the present environment for the calling thread, and goes on after that."""
        self._add(environment)
        token = _present.set(environment)
        try:
            yield
        finally:
            _present.reset(token)
            self._remove(environment)

    def replace_present(self, environment: Environment) -> None:
        """Has futures made in the present environment's place go to another one from now on."""
        before = self.present()
        if before is self.default:
            with self._lock:
                self.default = environment
                self._say()
        else:
            _present.set(environment)
        before._close()

    def forked(self) -> None:
        """In a child: nothing of the parent's goes on here."""
        self._lock = threading.Lock()
        for one in list(ALIVE):
            one._forked()


def checked_limit(max_threads: int | None) -> int:
    """How many may run at a time: as many as there are cores if nothing is said.

    Raises ValueError for less than 1.
    """
    if max_threads is None:
        return cores()
    if not isinstance(max_threads, int):
        raise TypeError(f"max_threads must be a whole number, not {max_threads!r}")
    if max_threads < 1:
        raise ValueError("max_threads must be 1 or more")
    return max_threads


def cores() -> int:
    """How many the process may use."""
    return len(os.sched_getaffinity(0))
