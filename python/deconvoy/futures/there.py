"""What a cluster's worker does for a future.

A function and its arguments come pickled (by cloudpickle, so that what is defined in a program's
own file can be sent), and an answer goes back: a value, or an error with its traceback as text.
"""

from __future__ import annotations

import collections
import sys
import threading
from typing import Any, NamedTuple

import cloudpickle
import distributed

from deconvoy.futures import child, kill
from deconvoy.futures.errors import FutureError, FutureKilled, FutureLost, ThreadKilled

# The threads of this worker that run a future, by its key.
_running: dict[str, int] = {}
# Those that were killed and do not run here: they may be on their way. Of the last ones.
_killed: collections.deque[str] = collections.deque(maxlen=10_000)
_lock = threading.Lock()


class Value(NamedTuple):
    content: Any


class Where(NamedTuple):
    """Of the environment that a future was made in, for those that it makes."""

    scheduler: str
    max_threads: int


class Paths(distributed.WorkerPlugin):  # type: ignore[misc]
    """A worker on the same machine finds the modules that its client finds."""

    def __init__(self) -> None:
        self.paths = list(sys.path)

    def setup(self, worker: Any) -> None:
        sys.path += [path for path in self.paths if path not in sys.path]


def is_ready(dask_worker: Any) -> bool:
    """Run by a nanny, which gets itself."""
    ready: bool = dask_worker.status == distributed.Status.running
    return ready


def run(key: str, pickled: bytes, where: Where) -> Value | child.Failure:
    """Calls what was pickled. Raises FutureKilled if it was killed meanwhile."""
    ident = threading.get_ident()
    with _lock:
        if key in _killed:
            raise FutureKilled
        _running[key] = ident
    try:
        return answer(pickled, where)
    finally:
        with _lock:
            del _running[key]
        kill.forget(ident, None)


def answer(pickled: bytes, where: Where) -> Value | child.Failure:
    from deconvoy.futures import _environments
    from deconvoy.futures.cluster import ClusterEnvironment

    inner = ClusterEnvironment(where.max_threads, address=where.scheduler, is_within=True)
    try:
        call, keywords = cloudpickle.loads(pickled)
        with _environments.within(inner):
            value = Value(call[0](*call[1:], **keywords))
            inner.wait_for_all(None)
    except ThreadKilled as told:
        raise FutureKilled("it was killed") from told
    except SystemExit as error:
        lost = FutureLost(f"it called sys.exit({error.code!r})")
        return child.failure(lost, error, cloudpickle.dumps)
    except BaseException as error:
        return child.failure(error, error, cloudpickle.dumps)
    try:
        cloudpickle.dumps(value, 5, buffer_callback=lambda _: None)
    except Exception as why:
        what = type(value.content).__qualname__
        return child.Failure(FutureError(f"its result, a {what}, cannot be pickled: {why}"), "")
    return value


def interrupt(key: str) -> bool:
    """Tells the thread that runs this future that it was killed, or whoever is about to; whether
    one runs it."""
    with _lock:
        ident = _running.get(key)
        if ident is None:
            _killed.append(key)
        else:
            kill.tell(ident, ThreadKilled)
    return ident is not None
