"""Futures on threads."""

from __future__ import annotations

import gc
import os
import threading
import time
from typing import Any

import pytest
from bodies import HANGS_AFTER_S, Gate, add, until
from deconvoy import futures
from deconvoy.futures import (
    FutureKilled,
    NoFutures,
    future,
    kill_future,
    touch,
    wait_for_all_futures,
    wait_for_any_future,
    wait_for_future,
    with_new_environment,
)


def test_many_threads_make_futures_at_once() -> None:
    with with_new_environment("thread", max_threads=2) as made:
        found: list[int] = []

        def makes(part: int) -> None:
            ours = [made.submit(add, part, number) for number in range(200)]
            found.append(sum(one.result() for one in ours))

        threads = [threading.Thread(target=makes, args=[part]) for part in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(HANGS_AFTER_S)
        assert sum(found) == sum(200 * part for part in range(8)) + 8 * sum(range(200))
        assert made.counts == (0, 0)


def test_a_future_that_waits_for_itself_is_told() -> None:
    with with_new_environment("thread"):
        box: list[future[Any]] = []
        ready = threading.Event()

        def body() -> Any:
            ready.wait(HANGS_AFTER_S)
            return touch(box[0])

        box.append(future(body))
        ready.set()
        with pytest.raises(RuntimeError, match="waits for itself"):
            wait_for_future(box[0]).result()


def test_two_that_wait_for_each_other_are_told() -> None:
    with with_new_environment("thread", max_threads=2):
        box: list[future[Any]] = []
        both = threading.Barrier(3)

        def body(other: int) -> Any:
            both.wait(HANGS_AFTER_S)
            return touch(box[other])

        box += [future(body, 1), future(body, 0)]
        both.wait(HANGS_AFTER_S)
        for one in box:
            with pytest.raises(RuntimeError, match="waits for itself"):
                touch(one)


def test_a_thread_that_cannot_be_interrupted_is_replaced_and_counted(gate: Gate) -> None:
    with with_new_environment("thread", max_threads=1) as made:
        assert isinstance(made, futures.ThreadEnvironment)
        stuck = future(gate.passes)
        gate.has_begun()
        assert kill_future(stuck)
        assert (made.stuck, made.counts) == (1, (0, 0))
        assert wait_for_future(future(add, 1)).result() == 2
        gate.open()
        until(lambda: made.stuck == 0)
        # What it was told has not reached what it does next.
        assert [wait_for_future(future(add, 1)).result() for _ in range(20)] == [2] * 20


def test_a_killed_future_that_waits_for_another_is_interrupted(gate: Gate) -> None:
    with with_new_environment("thread", max_threads=2) as made:
        assert isinstance(made, futures.ThreadEnvironment)
        inner = future(gate.passes, 7)
        outer = future(lambda: wait_for_future(inner))
        gate.has_begun()
        until(outer.running)
        time.sleep(0.01)
        assert kill_future(outer)
        until(lambda: made.stuck == 0)
        gate.open()
        assert touch(inner) == 7


def test_killing_one_does_not_reach_what_it_runs_within(gate: Gate) -> None:
    with with_new_environment("thread", max_threads=1) as made:
        assert isinstance(made, futures.ThreadEnvironment)
        box: list[future[Any]] = []

        def outer() -> None:
            box.append(future(gate.passes, 7))
            touch(box[0])
            raise AssertionError("it was killed")

        killed = future(outer)
        gate.has_begun()
        assert kill_future(killed)
        gate.open()
        assert touch(box[0]) == 7
        until(lambda: made.stuck == 0)
        with pytest.raises(FutureKilled):
            touch(killed)
        assert wait_for_future(future(add, 1)).result() == 2


def test_who_is_killed_while_it_waits_can_clean_up(gate: Gate) -> None:
    with with_new_environment("thread", max_threads=2):
        inner = future(gate.passes)
        cleaned = threading.Event()

        def waits() -> None:
            try:
                wait_for_future(inner)
            finally:
                for _ in range(10_000):
                    pass
                cleaned.set()

        outer = future(waits)
        gate.has_begun()
        until(outer.running)
        time.sleep(0.01)
        kill_future(outer)
        assert cleaned.wait(HANGS_AFTER_S)
        gate.open()


def test_workers_leave_and_come_again() -> None:
    with with_new_environment("thread", max_threads=2, idle_s=0.001):
        before = threading.active_count()
        for _ in range(3):
            assert wait_for_future(future(add, 1)).result() == 2
            until(lambda: threading.active_count() <= before)


def test_what_runs_is_named() -> None:
    with with_new_environment("thread", max_threads=1):
        name = wait_for_future(future(lambda: threading.current_thread().name)).result()
        assert name.startswith("future-")


def test_one_of_several_is_waited_for_in_a_worker() -> None:
    with with_new_environment("thread", max_threads=1):
        made = future(lambda: wait_for_any_future([future(add, 1)]))
        assert touch(wait_for_future(made).result()) == 2
        assert wait_for_all_futures() == []


def test_two_that_wait_for_any_do_not_wait_for_each_other() -> None:
    with with_new_environment("thread", max_threads=2):
        several = [future(wait_for_any_future) for _ in range(2)]
        with pytest.raises(NoFutures):
            wait_for_future(several[0]).result()


def test_what_is_raised_is_used(gate: Gate) -> None:
    with with_new_environment("thread", max_threads=4):
        for _ in range(4):
            future(gate.passes)
        for _ in range(4):
            gate.has_begun()
        gate.open(4)
        wait_for_all_futures()
        futures.future_max_threads(1)
        several = [future(gate.passes) for _ in range(8)]
        gate.has_begun()
        futures.future_max_threads(4)
        for _ in range(3):
            gate.has_begun()
        gate.open(8)
        wait_for_all_futures(several)


def test_idle_time_is_any_time() -> None:
    with with_new_environment("thread", idle_s=float("inf")):
        assert wait_for_future(future(add, 1)).result() == 2
    for wrong in (-1.0, float("nan")):
        with pytest.raises(ValueError, match="idle_s"):
            with_new_environment("thread", idle_s=wrong)


def test_memory_does_not_grow() -> None:
    with with_new_environment("thread"):
        touch(future(add, 1))
        gc.collect()
        before = len(gc.get_objects())
        for number in range(20_000):
            assert touch(future(add, number)) == number + 1
        gc.collect()
        assert len(gc.get_objects()) < before + 100


def forks(returns: bool) -> int:
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            # It was a worker, and is none of its own threads.
            for _ in range(2):
                assert touch(wait_for_future(future(add, 1), timeout=HANGS_AFTER_S)) == 2
            assert futures.environment().counts == (0, 0)
            status = 0
            if returns:
                return 0
        finally:
            if status or not returns:
                os._exit(status)
    return os.waitpid(pid, 0)[1]


def test_a_child_of_a_worker_has_workers_of_its_own() -> None:
    with with_new_environment("thread", max_threads=1):
        for returns in (False, True, False):
            assert wait_for_future(future(forks, returns)).result() == 0
