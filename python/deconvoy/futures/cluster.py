"""Futures on a Dask cluster: other machines, or processes of this one that stay.

At most `max_threads` of an environment's are at the cluster at a time; the others wait here, so
that they can be counted, cancelled and killed as anywhere. Dask's client has one thread for
answers; it hands them to threads of ours, which settle the futures, and may wait for others.
"""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import functools
import itertools
import logging
import os
import threading
import time
import traceback
from collections.abc import Iterator
from typing import Any

from deconvoy.futures.elsewhere import Elsewhere, finish
from deconvoy.futures.environment import checked_limit
from deconvoy.futures.errors import FutureError, FutureLost
from deconvoy.futures.future import future
from deconvoy.futures.thread import ThreadEnvironment

try:
    import cloudpickle
    import distributed

    from deconvoy.futures import there
except ImportError as error:
    raise ImportError(
        "futures on a cluster need Dask: install 'deconvoy[cluster]'", name=error.name
    ) from error

# How often somebody that waits looks whether the interpreter has a signal for it, in seconds.
LOOK_S = 0.2

# So long it is waited for a cluster to end; what is left of it ends with this process.
CLOSE_S = 10.0

# So long it is waited that workers take in that a future was killed, in seconds.
PATIENCE_S = 1.0

_numbers = itertools.count(1)


class ClusterEnvironment(Elsewhere):
    """Futures run by the workers of a Dask cluster, `max_threads` of them at a time.

    `address`: the scheduler's; without one, a cluster is started on this machine when the first
    future is made, one process for each of `max_threads`, and ended with the environment.
    `timeout_s`: how long it is waited for the scheduler; default: Dask's.
    `max_threads`: default: as many as the cluster has threads; without a cluster, the cores.

    Functions, arguments and results are pickled (functions of the program itself by value). A
    future sees nothing of the memory here, nor its context variables. What it prints is in the
    worker's output. A cluster that was not started here may run one again whose worker ended
    (Dask's `allowed-failures`). Hooks are called here: when a future is sent, and when its answer
    is there.

    Raises ImportError without Dask, OSError when nobody answers at the address.
    """

    kind = "dask"

    def __init__(
        self,
        max_threads: int | None = None,
        *,
        address: str | None = None,
        timeout_s: float | None = None,
        is_within: bool = False,
    ) -> None:
        self._address = address
        self._timeout_s = timeout_s
        # In a worker of that cluster.
        self._is_within = is_within
        self._wanted = None if max_threads is None else checked_limit(max_threads)
        super().__init__()
        if address is not None and not is_within:
            # A wrong address is told where it was written.
            self._connected()

    def _begin(self) -> None:
        super()._begin()
        self._changed = threading.Condition(self._lock)
        self._pending: collections.deque[future[Any]] = collections.deque()
        # What Dask calls a future.
        self._running: dict[future[Any], Any] = {}
        self._client: Any = None
        self._cluster: Any = None

    def another(self) -> ClusterEnvironment:
        return self._with_my_hooks(
            ClusterEnvironment(
                self._wanted,
                address=self._address,
                timeout_s=self._timeout_s,
                is_within=self._is_within,
            )
        )

    # The cluster.

    def _connected(self) -> Any:
        with self._changed:
            if self._client is None:
                self._client = self._connect()
            return self._client

    def _connect(self) -> Any:
        if self._is_within:
            return distributed.get_client()
        if self._address is not None:
            options = {} if self._timeout_s is None else {"timeout": self._timeout_s}
            return distributed.Client(self._address, set_as_default=False, **options)
        # Not by multiprocessing, which would run a program's file again that has no guard for it.
        count = self._wanted or checked_limit(None)
        self._cluster = distributed.deploy.subprocess.SubprocessCluster(
            n_workers=count,
            threads_per_worker=1,
            dashboard_address=None,
            silence_logs=logging.CRITICAL,
            # What has ended one worker is not sent to another.
            scheduler_kwargs={"allowed_failures": 0, "preload": ["deconvoy.futures.orphan"]},
            worker_class="deconvoy.futures.orphan.Nanny",
        )
        client = distributed.Client(self._cluster, set_as_default=False)
        client.register_plugin(there.Paths())
        client.wait_for_workers(count)
        # A worker that ends before its nanny has seen it start is not replaced.
        while not all(client.run(there.is_ready, nanny=True).values()):
            time.sleep(0.01)
        return client

    # Settings.

    @property
    def max_threads(self) -> int:
        if self._wanted is None:
            if self._address is None:
                return checked_limit(None)
            self._wanted = max(sum(self._connected().nthreads().values()), 1)
        return self._wanted

    @max_threads.setter
    def max_threads(self, limit: int) -> None:
        with self._changed:
            self._wanted = checked_limit(limit)
            if self._cluster is not None and len(self._cluster.workers) < limit:
                self._cluster.scale(limit)
        self._fill()

    @property
    def counts(self) -> tuple[int, int]:
        with self._changed:
            return len(self._running), len(self._pending)

    # Starting.

    def _start(self, one: future[Any]) -> None:
        self._connected()
        with self._changed:
            self._pending.append(one)
        self._fill()

    def _fill(self) -> None:
        """Sends what may run."""
        while (taken := self._next()) is not None:
            one, call, keywords = taken
            try:
                self._send(one, call, keywords)
            except Exception as error:
                self._over(one, error)

    def _next(self) -> tuple[future[Any], tuple[Any, ...], dict[str, Any]] | None:
        """One that has a place from now on, and what it is to run."""
        with self._changed:
            while self._pending and len(self._running) < self.max_threads:
                one = self._pending.popleft()
                if (taken := one._take_body()) is not None:
                    # What runs it comes later.
                    self._running[one] = None
                    one._begin()
                    return one, taken[0], taken[1]
        return None

    def _send(self, one: future[Any], call: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        """Raises what a hook raises, FutureError for what cannot be sent, FutureLost if there is
        nobody to send it to."""
        for hook in self._before:
            hook(one)
        try:
            pickled = cloudpickle.dumps((call, keywords))
        except Exception as why:
            name = getattr(call[0], "__qualname__", repr(call[0]))
            raise FutureError(f"{name} or its arguments cannot be pickled: {why}") from why
        key = f"deconvoy-{os.getpid()}-{next(_numbers)}-{id(self):x}"
        try:
            client = self._connected()
            where = there.Where(client.scheduler.address, self.max_threads)
            sent = client.submit(there.run, key, pickled, where, key=key, pure=False)
        except Exception as error:
            raise lost(error) from error
        with self._changed:
            if one not in self._running:
                # It was killed meanwhile.
                sent.cancel()
                return
            self._running[one] = sent
        sent.add_done_callback(functools.partial(self._hand_over, one))

    # Answers.

    def _hand_over(self, one: future[Any], sent: Any) -> None:
        _answers.submit(self._answered, one, sent)
        # Nobody asks for those that have settled others.
        while _answers._take_finished() is not None:
            pass

    def _answered(self, one: future[Any], sent: Any) -> None:
        with self._changed:
            if one not in self._running:
                return
        try:
            answer = sent.result()
        except Exception as error:
            self._over(one, lost(error))
        else:
            if isinstance(answer, there.Value):
                self._over(one, None, answer.content)
            else:
                self._over(one, answer.with_traceback())
        finally:
            sent.release()
            self._fill()

    def _over(self, one: future[Any], error: BaseException | None, value: Any = None) -> None:
        # Among the finished before it is over: whoever sees that may look for it there.
        with self._changed:
            self._finished.append(one)
            self._running.pop(one, None)
        was_first = one._settle(value) if error is None else one._fail(error)
        with self._changed:
            if not was_first:
                self._forget(one)
            self._changed.notify_all()
        for hook in self._after:
            try:
                hook(one)
            except Exception:
                # As on threads: it is told, and the result stands.
                traceback.print_exc()

    # What an environment is asked.

    def kill(self, one: future[Any], force: bool = False) -> bool:
        """Ends it as killed; whether it was not over. The worker's thread that runs it is told by
        an asynchronous exception; with `force`, or if that worker does not answer, it is started
        anew if its cluster was started here."""
        with self._changed:
            sent = self._running.pop(one, None)
        was_alive = one._kill()
        if sent is not None:
            self._interrupt(sent, force)
        with self._changed:
            self._changed.notify_all()
        self._fill()
        return was_alive

    def _interrupt(self, sent: Any, force: bool) -> None:
        client = self._connected()
        is_deaf = False
        if not force or self._cluster is None:
            told = functools.partial(client._run, there.interrupt, sent.key, on_error="ignore")
            try:
                client.sync(told, callback_timeout=PATIENCE_S)
            except TimeoutError:
                # It is in C code that keeps its GIL.
                is_deaf = True
        if (force or is_deaf) and self._cluster is not None:
            keys = client.processing().items()
            client.restart_workers([worker for worker, has in keys if sent.key in has])
        sent.cancel()

    def _wait(self, one: future[Any], timeout: float | None) -> None:
        with self._waiting():
            self._wait_until(one._done_already, timeout)

    def _wait_until(self, holds: Any, timeout: float | None) -> None:
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            while not holds():
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise TimeoutError
                self._changed.wait(LOOK_S if left is None else min(left, LOOK_S))

    @contextlib.contextmanager
    def _waiting(self) -> Iterator[None]:
        """Whoever waits in a worker's thread, be it a cluster's or of threads, makes room."""
        with super()._waiting():
            has_left = self._is_within and leave_worker()
            try:
                yield
            finally:
                if has_left:
                    distributed.rejoin()

    def _wait_any(self, timeout: float | None) -> bool:
        with self._waiting():
            self._wait_until(lambda: self._finished or not self._unfinished(), timeout)
        return bool(self._finished or self._unfinished())

    def _unfinished(self) -> list[future[Any]]:
        with self._changed:
            return [*self._running, *self._pending]

    def _withdrawn(self, one: future[Any]) -> None:
        """It was cancelled or killed before it had a place."""
        with self._changed:
            with contextlib.suppress(ValueError):
                self._pending.remove(one)
            self._changed.notify_all()

    def _look(self, timeout: float | None) -> None:
        """Whoever settles one does it without being asked."""

    def _watched(self, one: future[Any]) -> None:
        """It is settled by a thread in any case."""

    def _close(self) -> None:
        with self._changed:
            if self._unfinished():
                return
            client, cluster = self._client, self._cluster
            self._client = self._cluster = None
        if client is not None and not self._is_within:
            client.close()
        if cluster is not None:
            # If it has been ended by others there is nobody to be asked to.
            with contextlib.suppress(Exception):
                cluster.close(CLOSE_S)

    def _finish(self) -> None:
        if not self._is_within:
            super()._finish()

    def _forked(self) -> None:
        # Nothing is locked: another thread of the parent's may have done so for ever.
        alive = [*self._running, *self._pending]
        # What the parent has of Dask's works in the parent only; nobody here may close it.
        _kept.append((self._client, self._cluster, self._running))
        self._begin()
        for one in alive:
            one._lose(FutureLost("it ran beside this process, at a cluster of the parent's"))


# Before threads are waited for, at the end of the interpreter, some of Dask's among them.
threading._register_atexit(finish, ClusterEnvironment)  # type: ignore[attr-defined]

# Settles futures of all clusters, and may wait for others meanwhile.
_answers = ThreadEnvironment(2)

# Of parents.
_kept: list[Any] = []


def leave_worker() -> bool:
    """Gives the place of a cluster's worker to others; whether this thread has one."""
    try:
        distributed.secede()
    except (KeyError, ValueError):
        # A thread of the task's own, or one that has left it already.
        return False
    return True


def lost(error: Exception) -> BaseException:
    """What it means that Dask has no answer."""
    if isinstance(error, distributed.scheduler.KilledWorker):
        tried = error.allowed_failures + 1
        times = f", {tried} times" if tried > 1 else ""
        return FutureLost(f"its worker ended before it had an answer{times}")
    if isinstance(error, concurrent.futures.CancelledError):
        return FutureLost("the cluster has cancelled it, or was closed")
    return FutureLost(f"the cluster has no answer: {error}")
