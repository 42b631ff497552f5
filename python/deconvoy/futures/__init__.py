"""Futures: one way to have something done meanwhile, on threads, forks or a cluster.

    from deconvoy import future, touch

    answers = [future(work, part) for part in parts]
    print([touch(answer) for answer in answers])

The names are those of the Common Lisp libraries `future` and `fork-future`.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator, MutableSequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar, overload

from deconvoy._native import ProcessGlobal, touch
from deconvoy.futures.environment import Environment, Environments, Hook, wait
from deconvoy.futures.errors import FutureError, FutureKilled, FutureLost, NoFutures
from deconvoy.futures.future import future
from deconvoy.futures.thread import ThreadEnvironment

__all__ = [
    "Environment",
    "FutureError",
    "FutureKilled",
    "FutureLost",
    "NoFutures",
    "ProcessGlobal",
    "ThreadEnvironment",
    "ThreadKilled",
    "after_finish_hooks",
    "before_start_hooks",
    "environment",
    "future",
    "future_max_threads",
    "initialize_environment",
    "kill_all_futures",
    "kill_future",
    "make_environment",
    "touch",
    "wait_for_all_futures",
    "wait_for_any_future",
    "wait_for_future",
    "with_new_environment",
]

T = TypeVar("T")

_environments = Environments(ThreadEnvironment())
os.register_at_fork(after_in_child=_environments.forked)


def environment() -> Environment:
    """The present environment: that of the innermost `with_new_environment`, else the default."""
    return _environments.present()


def wait_for_future(one: future[T], timeout: float | None = None) -> future[T]:
    """Waits until a future is over, and returns it. Unlike `touch` it never runs it here, and
    raises nothing that its function raised.

    Raises TimeoutError after `timeout` seconds, RuntimeError if it waits for the calling thread.
    """
    wait(one, timeout)
    return one


def wait_for_any_future(
    futures: Iterable[future[T]] | None = None, timeout: float | None = None
) -> future[T]:
    """The first of these that is over, in the order of finishing; without an argument, the next of
    the environment's that finishes, which is not returned a second time.

    Raises NoFutures when there is none (left), TimeoutError after `timeout` seconds.
    """
    if futures is None:
        return environment().wait_for_any(timeout)
    several = checked(futures)
    if not several:
        raise NoFutures("no future to wait for")
    over = [one for one in several if one.done()]
    if not over:
        over = list(_wait_first(several, timeout))
    first = min(over, key=lambda one: one._order)
    wait(first, None)
    return first


def checked(futures: Iterable[future[T]]) -> list[future[T]]:
    """Raises TypeError for what is no future of ours."""
    if isinstance(futures, future):
        raise TypeError("several futures are waited for: a list of them, not one")
    several = list(futures)
    for one in several:
        if not isinstance(one, future):
            raise TypeError(f"{one!r} is no future of deconvoy's")
    return several


def _wait_first(several: list[future[T]], timeout: float | None) -> Iterable[future[T]]:
    from concurrent.futures import FIRST_COMPLETED
    from concurrent.futures import wait as wait_for_several

    with contextlib.ExitStack() as waiting:
        for place in {one.environment for one in several}:
            waiting.enter_context(place._waiting())
            place._hurry()
        done: Iterable[Any] = wait_for_several(several, timeout, FIRST_COMPLETED).done
    if not done:
        raise TimeoutError
    return done


def wait_for_all_futures(
    futures: Iterable[future[T]] | None = None, timeout: float | None = None
) -> list[future[T]]:
    """These futures, when all are over; without an argument, all of the environment's that nobody
    has asked for, in the order of finishing.

    Raises TimeoutError after `timeout` seconds.
    """
    if futures is None:
        return environment().wait_for_all(timeout)
    several = checked(futures)
    deadline = None if timeout is None else time.monotonic() + timeout
    for one in several:
        wait(one, None if deadline is None else max(deadline - time.monotonic(), 0))
    return several


def kill_future(one: future[Any], force: bool = False) -> bool:
    """Ends a future: touching it raises FutureKilled. Whether it was not over.

    A thread is told by ThreadKilled when it next runs Python code, and replaced at once. A child
    process gets SIGTERM, and SIGKILL with `force`.
    """
    where: Environment = checked([one])[0].environment
    return where.kill(one, force)


def kill_all_futures() -> int:
    """Kills all of the environment's that are not over, and forgets all others; how many were
    killed."""
    return environment().kill_all()


def initialize_environment(kill_current_futures: bool = False) -> None:
    """Begins anew: the present environment is replaced by one with the same settings, without
    futures. Those that there are go on, or are killed."""
    before = environment()
    if kill_current_futures:
        before.kill_all()
    _environments.replace_present(before.another())


def with_new_environment(
    backend: str = "thread", max_threads: int | None = None, **options: Any
) -> AbstractContextManager[Environment]:
    """For a `with` block: an environment of its own, with its own limit and hooks, for all that is
    begun in it, also by its futures. Those of the outer one go on. At its end it waits for its
    futures; after an error, those that have not begun are cancelled; after Ctrl-C or an exit, all
    are killed.

    `backend`: `thread`, `fork` or `dask`. `max_threads`: how many run at a time; default: the
    cores. More `options`: those of the back end's class: `idle_s` for `thread`, `address` for
    `dask`.

    Raises ValueError for an unknown back end or a limit below 1.
    """
    return _environments.opened(make_environment(backend, max_threads, **options))


def make_environment(
    backend: str = "thread", max_threads: int | None = None, **options: Any
) -> Environment:
    """An environment, for whoever wants an executor.

    Raises ValueError for an unknown back end or a limit below 1; with `dask` ImportError without
    Dask, and OSError when nobody answers at the `address`.
    """
    if backend == "thread":
        return ThreadEnvironment(max_threads, **options)
    if backend == "fork":
        from deconvoy.futures.fork import ForkEnvironment

        return ForkEnvironment(max_threads, **options)
    if backend == "dask":
        from deconvoy.futures.cluster import ClusterEnvironment

        return ClusterEnvironment(max_threads, **options)
    raise ValueError(f"no back end {backend!r}; there are thread, fork, dask")


@overload
def future_max_threads() -> int: ...
@overload
def future_max_threads(limit: int) -> int: ...
def future_max_threads(limit: int | None = None) -> int:
    """How many futures of the present environment run at a time; sets it if given one.

    Raises ValueError for less than 1.
    """
    present = environment()
    if limit is not None:
        present.max_threads = limit
    return present.max_threads


class _PresentHooks(MutableSequence[Hook]):
    """The hooks of whatever environment is the present one."""

    def __init__(self, name: str) -> None:
        self._name = name

    def _list(self) -> list[Hook]:
        found: list[Hook] = getattr(environment(), self._name)
        return found

    def __getitem__(self, place: Any) -> Any:
        return self._list()[place]

    def __setitem__(self, place: Any, hook: Any) -> None:
        self._list()[place] = hook

    def __delitem__(self, place: Any) -> None:
        del self._list()[place]

    def __len__(self) -> int:
        return len(self._list())

    def __iter__(self) -> Iterator[Hook]:
        return iter(self._list())

    def insert(self, place: int, hook: Hook) -> None:
        self._list().insert(place, hook)

    def __repr__(self) -> str:
        return repr(self._list())


before_start_hooks: MutableSequence[Hook] = _PresentHooks("before_start_hooks")
after_finish_hooks: MutableSequence[Hook] = _PresentHooks("after_finish_hooks")
