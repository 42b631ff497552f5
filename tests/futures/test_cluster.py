"""Futures on a cluster."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest
from bodies import HANGS_AFTER_S, add, loops, until
from deconvoy import futures
from deconvoy.futures import (
    FutureError,
    FutureKilled,
    FutureLost,
    future,
    kill_future,
    touch,
    wait_for_all_futures,
    with_new_environment,
)

pytest.importorskip("distributed", reason="futures on a cluster need Dask")

# No file, no guard against being run again, and all that it begins is done.
PROGRAM = """
import os
from deconvoy import future, touch
import deconvoy.futures as futures

def says(word):
    return word, os.getpid()

with futures.with_new_environment("dask", max_threads=2):
    several = [future(says, word) for word in ("one", "two", "three")]
    words, where = zip(*[touch(one) for one in several])
    assert os.getpid() not in where
    print(*words, sep="\\n")
environment = futures.make_environment("dask", max_threads=1)
environment.submit(print, "late")
"""


def test_one_is_started_where_there_is_none() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == ["one", "two", "three", "late"]


def test_all_of_its_threads_are_used_if_nothing_is_said(cluster: str) -> None:
    with with_new_environment("dask", address=cluster) as made:
        assert made.max_threads == 4
        assert touch(future(os.getpid)) != os.getpid()


def test_where_nobody_answers_is_told() -> None:
    with pytest.raises(OSError, match=r"127\.0\.0\.1:1"):
        with_new_environment("dask", address="tcp://127.0.0.1:1", timeout_s=0.5)


def test_what_cannot_be_sent_is_told(cluster: str) -> None:
    with with_new_environment("dask", address=cluster):
        generator = (number for number in range(3))
        with pytest.raises(FutureError, match="cannot be pickled"):
            touch(future(next, generator))
        with pytest.raises(FutureError, match="its result, a generator, cannot be pickled"):
            touch(future(lambda: (number for number in range(3))))
        with pytest.raises(FutureError, match=r"it called sys.exit\(3\)"):
            touch(future(sys.exit, 3))


def test_a_worker_that_dies_is_told() -> None:
    with with_new_environment("dask", max_threads=1) as made:
        with pytest.raises(FutureLost, match="its worker ended before it had an answer"):
            touch(future(os._exit, 1))
        # Another one takes its place.
        assert touch(future(add, 1)) == 2
        assert made.counts == (0, 0)


def test_one_that_sleeps_is_killed_by_force() -> None:
    with with_new_environment("dask", max_threads=1):
        before = touch(future(os.getpid))
        sleeps = future(time.sleep, 1000)
        until(sleeps.running)
        time.sleep(0.1)
        assert kill_future(sleeps, force=True)
        with pytest.raises(FutureKilled):
            touch(sleeps)
        assert touch(future(os.getpid)) != before


def test_a_killed_one_is_interrupted(cluster: str) -> None:
    with with_new_environment("dask", address=cluster):
        several = [future(loops) for _ in range(4)]
        assert futures.kill_all_futures() == 4
        assert {one.status for one in several} == {"killed"}
        assert [touch(one) for one in [future(add, 1) for _ in range(4)]] == [2] * 4


def test_one_that_keeps_its_gil_is_killed_all_the_same() -> None:
    with with_new_environment("dask", max_threads=1):
        counts = future(sum, range(10**15))
        until(counts.running)
        time.sleep(0.1)
        assert kill_future(counts)
        with pytest.raises(FutureKilled):
            touch(counts)
        # It does not stand in the way of others.
        assert touch(future(add, 1)) == 2


def test_a_forked_child_leaves_it_alone(cluster: str) -> None:
    with with_new_environment("dask", address=cluster):
        one = future(time.sleep, 0.2)
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                with pytest.raises(FutureLost):
                    touch(one)
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(pid, 0)[1] == 0
        assert touch(one) is None
        assert wait_for_all_futures() == []
