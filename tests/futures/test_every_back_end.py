"""Futures: the same on every back end, after the tests of the source libraries."""

from __future__ import annotations

import concurrent.futures as standard
import dataclasses
import threading
import time
import traceback
from pathlib import Path

import pytest
from bodies import (
    HANGS_AFTER_S,
    Gate,
    Opens,
    add,
    fails,
    loops,
    nested,
    present_kind,
    until,
    waits_for_nested,
)
from deconvoy import futures
from deconvoy.futures import (
    Environment,
    FutureKilled,
    NoFutures,
    future,
    kill_all_futures,
    kill_future,
    touch,
    wait_for_all_futures,
    wait_for_any_future,
    wait_for_future,
    with_new_environment,
)


def test_what_a_function_returns_comes_back(environment: Environment) -> None:
    assert touch(future(add, 1)) == 2
    assert touch(future(add, 1, other=5)) == 6

    @future
    def answer() -> int:
        return 42

    assert touch(answer) == 42
    # As often as one likes.
    assert (touch(answer), answer.result(), answer.done(), answer.status) == (42, 42, True, "done")
    many = [future(add, number) for number in range(20)]
    assert [touch(one) for one in many] == list(range(1, 21))
    assert environment.counts == (0, 0)


def test_what_is_no_function_is_told(environment: Environment) -> None:
    with pytest.raises(TypeError, match="a future is made of a function and its arguments"):
        future(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a future is made of a function"):
        future()  # type: ignore[call-arg]


def test_an_error_comes_as_it_was_raised(environment: Environment) -> None:
    failed = future(fails)
    for _ in range(2):
        with pytest.raises(KeyError, match="that") as raised:
            touch(failed)
        # Where it happened is told, across threads and processes.
        assert "in fails" in "".join(traceback.format_exception(raised.value))
    assert isinstance(failed.exception(), KeyError)
    assert failed.status == "failed"
    # And nobody is harmed by it.
    assert touch(future(add, 1)) == 2


def test_what_is_no_future_is_told(environment: Environment) -> None:
    one = future(add, 1)
    for call in (
        lambda: kill_future(3),  # type: ignore[arg-type]
        lambda: wait_for_any_future([3]),  # type: ignore[list-item]
        lambda: wait_for_all_futures([3]),  # type: ignore[list-item]
    ):
        with pytest.raises(TypeError, match="3 is no future of deconvoy's"):
            call()
    with pytest.raises(TypeError, match="a list of them, not one"):
        wait_for_any_future(one)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a whole number, not '3'"):
        with_new_environment(environment.kind, "3")  # type: ignore[arg-type]
    assert touch(one) == 2


def test_all_come_in_the_order_of_finishing(opens: Opens) -> None:
    with opens(max_threads=3):
        several = [future(time.sleep, delay) for delay in (0.4, 0.2, 0.0)]
        assert wait_for_all_futures() == several[::-1]


def test_a_timeout_of_nothing_looks(environment: Environment) -> None:
    one = future(add, 1)
    until(one.done)
    assert one.result(timeout=0) == 2
    assert list(environment.map(add, [1, 2], timeout=HANGS_AFTER_S)) == [2, 3]


@dataclasses.dataclass(frozen=True)
class Frozen(Exception):
    """Takes no attributes."""

    number: int


def raises_frozen() -> None:
    raise Frozen(3)


def test_an_error_that_takes_no_traceback(environment: Environment) -> None:
    for _ in range(2):
        with pytest.raises(Exception, match=r"3|Frozen"):
            touch(future(raises_frozen))
        # It does not stand in the way of others.
        assert touch(future(add, 1)) == 2


def test_who_waits_is_told_when_another_thread_kills(environment: Environment) -> None:
    for _ in range(3):
        one = future(loops)
        until(one.running)
        waits = threading.Thread(target=one.exception)
        waits.start()
        time.sleep(0.02)
        assert kill_future(one)
        other = future(add, 1)
        waits.join(HANGS_AFTER_S)
        assert not waits.is_alive()
        assert touch(other) == 2


def test_so_many_run_as_may(environment: Environment, gate: Gate) -> None:
    first, second = future(gate.passes, 1), future(gate.passes, 2)
    assert environment.counts == (2, 0)
    third = future(gate.passes, 3)
    assert environment.counts == (2, 1)
    for _ in range(2):
        gate.has_begun()
    assert first.running() and second.running()
    gate.open()
    # Its place goes to the third, without anybody waiting.
    gate.has_begun()
    gate.open(2)
    assert sorted(touch(one) for one in (first, second, third)) == [1, 2, 3]
    assert environment.counts == (0, 0)


def test_a_limit_is_changed_meanwhile(environment: Environment, gate: Gate) -> None:
    assert futures.future_max_threads() == environment.max_threads == 2
    several = [future(gate.passes, number) for number in range(4)]
    for _ in range(2):
        gate.has_begun()
    assert futures.future_max_threads(3) == 3
    gate.has_begun()
    assert environment.counts == (3, 1)
    assert futures.future_max_threads(1) == 1
    gate.open(4)
    assert [one.result() for one in wait_for_all_futures(several)] == [0, 1, 2, 3]
    assert touch(future(add, 1)) == 2
    for wrong in (0, -1):
        with pytest.raises(ValueError, match="1 or more"):
            futures.future_max_threads(wrong)


def test_any_comes_in_the_order_of_finishing(environment: Environment, tmp_path: Path) -> None:
    one, other = Gate(tmp_path / "one"), Gate(tmp_path / "other")
    first, second = future(one.passes), future(other.passes)
    for each in (one, other):
        each.has_begun()
    with pytest.raises(TimeoutError):
        wait_for_any_future(timeout=0.001)
    other.open()
    assert wait_for_any_future(timeout=HANGS_AFTER_S) is second
    assert wait_for_any_future([first, second]) is second
    one.open()
    assert wait_for_any_future(timeout=HANGS_AFTER_S) is first
    with pytest.raises(NoFutures, match="no future is left"):
        wait_for_any_future()
    with pytest.raises(NoFutures):
        wait_for_any_future([])
    # Both are over: the one that was first.
    assert wait_for_any_future([first, second]) is second
    for each in (one, other):
        each.close()


def test_all_are_waited_for(environment: Environment, gate: Gate) -> None:
    held = future(gate.passes, 1)
    several = [held, *(future(add, number) for number in range(5))]
    with pytest.raises(TimeoutError):
        wait_for_all_futures(timeout=0.001)
    with pytest.raises(TimeoutError):
        wait_for_future(held, timeout=0.001)
    with pytest.raises(TimeoutError):
        touch(held, timeout=0.001)
    with pytest.raises(TimeoutError):
        held.exception(timeout=0.001)
    gate.open()
    found = wait_for_all_futures(timeout=HANGS_AFTER_S)
    assert {id(one) for one in found} == {id(one) for one in several}
    assert wait_for_all_futures() == []
    assert all(one.done() for one in wait_for_all_futures(several))
    assert wait_for_future(held) is held


def test_killing_one_that_waits(environment: Environment, gate: Gate) -> None:
    running = [future(gate.passes, number) for number in range(2)]
    waits = future(gate.passes, 3)
    for _ in range(2):
        gate.has_begun()
    assert kill_future(waits) and not kill_future(waits)
    assert environment.counts == (2, 0)
    assert (waits.status, waits.done(), waits.cancelled()) == ("killed", True, False)
    with pytest.raises(FutureKilled):
        touch(waits)
    assert isinstance(waits.exception(), FutureKilled)
    gate.open(2)
    assert [touch(one) for one in running] == [0, 1]
    assert not kill_future(running[0])
    # What was over can be touched still.
    assert touch(running[0]) == 0


def test_killing_one_that_runs_lets_the_next_begin(environment: Environment, gate: Gate) -> None:
    running = [future(loops) for _ in range(2)]
    waits = future(gate.passes, 3)
    until(lambda: all(one.running() for one in running))
    assert kill_future(running[0])
    with pytest.raises(FutureKilled):
        touch(running[0])
    gate.has_begun()
    assert waits.running()
    assert environment.counts == (2, 0)
    gate.open()
    assert touch(waits) == 3
    assert kill_all_futures() == 1
    assert environment.counts == (0, 0)
    with pytest.raises(NoFutures):
        wait_for_any_future()
    assert touch(future(add, 1)) == 2


def test_killing_all(environment: Environment, gate: Gate) -> None:
    several = [future(loops) for _ in range(5)]
    over = future(add, 1)
    kept = futures.environment()
    assert kept is environment
    assert kill_all_futures() in (5, 6)
    assert environment.counts == (0, 0)
    assert {one.status for one in several} == {"killed"}
    assert over.status in ("done", "killed")
    assert wait_for_all_futures() == []


def test_cancelling(environment: Environment, gate: Gate) -> None:
    running = [future(gate.passes) for _ in range(2)]
    waits = future(add, 1)
    for _ in range(2):
        gate.has_begun()
    assert waits.status == "pending"
    assert waits.cancel() and waits.cancel() and waits.cancelled()
    with pytest.raises(standard.CancelledError):
        touch(waits)
    assert not running[0].cancel()
    gate.open(2)
    wait_for_all_futures(running)


def test_futures_make_futures(environment: Environment) -> None:
    depth = 1000 if environment.kind == "thread" else 4
    assert touch(future(nested, depth)) == depth
    assert environment.counts == (0, 0)


def test_a_future_that_only_waits_makes_room(environment: Environment) -> None:
    depth = 100 if environment.kind == "thread" else 4
    assert wait_for_future(future(waits_for_nested, depth)).result() == depth


def test_environments_are_nested(environment: Environment, gate: Gate) -> None:
    outer = future(gate.passes, 1)
    gate.has_begun()
    for kind in ("thread", "fork"):
        with with_new_environment(kind, max_threads=1) as inner:
            assert futures.environment() is inner
            assert futures.future_max_threads() == 1
            assert inner.counts == (0, 0)
            assert touch(future(add, 1)) == 2
            one = future(add, 2)
            assert wait_for_any_future() is one
            assert kill_all_futures() == 0
        assert futures.environment() is environment
        assert one.environment is inner
        with pytest.raises(RuntimeError, match="after shutdown"):
            inner.submit(add, 1)
    assert outer.running()
    gate.open()
    assert touch(outer) == 1


def test_bodies_and_their_futures_are_in_the_environment_of_where_they_are_made(
    opens: Opens,
) -> None:
    with opens(max_threads=3) as made:
        expected = made.kind, 3
        assert touch(future(present_kind)) == expected
        assert touch(future(lambda: touch(future(present_kind)))) == expected
        waited = wait_for_future(future(lambda: wait_for_future(future(present_kind)).result()))
        assert waited.result() == expected


def test_an_environment_begins_anew(environment: Environment, gate: Gate) -> None:
    futures.before_start_hooks.append(print)
    futures.before_start_hooks.clear()
    running = future(gate.passes, 1)
    gate.has_begun()
    futures.initialize_environment()
    fresh = futures.environment()
    assert fresh is not environment
    assert (fresh.kind, fresh.max_threads, fresh.counts) == (environment.kind, 2, (0, 0))
    gate.open()
    assert touch(running) == 1
    looping = future(loops)
    until(looping.running)
    futures.initialize_environment(kill_current_futures=True)
    assert looping.status == "killed"
    assert touch(future(add, 1)) == 2
