"""Futures: the same on every back end, after the tests of the source libraries."""

from __future__ import annotations

import asyncio
import concurrent.futures as standard
import contextvars
import gc
import os
import random
import signal
import subprocess
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deconvoy import futures
from deconvoy.futures import (
    Environment,
    FutureError,
    FutureKilled,
    FutureLost,
    NoFutures,
    ProcessGlobal,
    future,
    kill_all_futures,
    kill_future,
    touch,
    wait_for_all_futures,
    wait_for_any_future,
    wait_for_future,
    with_new_environment,
)

# Not a measure of anything: a hang must not hang the tests.
HANGS_AFTER_S = 60

BACKENDS = ("thread", "fork")


@pytest.fixture(params=BACKENDS)
def environment(request: pytest.FixtureRequest) -> Iterator[Environment]:
    with with_new_environment(request.param, max_threads=2) as made:
        yield made


def add(one: int, other: int = 1) -> int:
    return one + other


def fails() -> None:
    raise KeyError("that")


class Gate:
    """What a future waits at until it is opened; also across a fork."""

    def __init__(self) -> None:
        self.out, self.into = os.pipe()
        self.begun, self.begins = os.pipe()

    def passes(self, value: Any = None) -> Any:
        os.write(self.begins, b".")
        os.read(self.out, 1)
        return value

    def has_begun(self) -> None:
        os.read(self.begun, 1)

    def open(self, many: int = 1) -> None:
        os.write(self.into, b"." * many)

    def close(self) -> None:
        for end in (self.out, self.into, self.begun, self.begins):
            os.close(end)


@pytest.fixture
def gate() -> Iterator[Gate]:
    made = Gate()
    yield made
    made.close()


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


def test_any_comes_in_the_order_of_finishing(environment: Environment) -> None:
    one, other = Gate(), Gate()
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


def loops() -> None:
    while True:
        time.sleep(0.0001)


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


def until(holds: Any) -> None:
    deadline = time.monotonic() + HANGS_AFTER_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.001)


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


def nested(depth: int) -> int:
    return 0 if depth == 0 else 1 + touch(future(nested, depth - 1))


def test_futures_make_futures(environment: Environment) -> None:
    depth = 1000 if environment.kind == "thread" else 4
    assert touch(future(nested, depth)) == depth
    assert environment.counts == (0, 0)


def waits_for_nested(depth: int) -> int:
    if depth == 0:
        return 0
    inner = wait_for_future(future(waits_for_nested, depth - 1))
    return 1 + inner.result()


def test_a_future_that_only_waits_makes_room(environment: Environment) -> None:
    depth = 100 if environment.kind == "thread" else 4
    assert wait_for_future(future(waits_for_nested, depth)).result() == depth


def test_environments_are_nested(environment: Environment, gate: Gate) -> None:
    outer = future(gate.passes, 1)
    gate.has_begun()
    for kind in BACKENDS:
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


def present_kind() -> tuple[str, int]:
    return futures.environment().kind, futures.future_max_threads()


def test_bodies_and_their_futures_are_in_the_environment_of_where_they_are_made() -> None:
    with with_new_environment("thread", max_threads=3):
        assert touch(future(present_kind)) == ("thread", 3)
        assert touch(future(lambda: touch(future(present_kind)))) == ("thread", 3)
        waited = wait_for_future(future(lambda: wait_for_future(future(present_kind)).result()))
        assert waited.result() == ("thread", 3)


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


def test_hooks_are_called_where_a_future_runs(environment: Environment) -> None:
    into, out = os.pipe()
    here = os.getpid()

    def before(one: future[Any]) -> None:
        os.write(out, f"before {one.status} {os.getpid() == here}\n".encode())

    def after(one: future[Any]) -> None:
        os.write(out, b"after\n")

    futures.before_start_hooks.append(before)
    futures.after_finish_hooks.append(after)
    wait_for_future(future(add, 1))
    is_here = environment.kind == "thread"
    said = b""
    while said.count(b"\n") < 2:
        said += os.read(into, 100)
    assert said.decode() == f"before running {is_here}\nafter\n"
    futures.before_start_hooks[:] = [lambda one: 1 / 0]
    futures.after_finish_hooks.clear()
    with pytest.raises(ZeroDivisionError):
        touch(future(add, 1))
    for end in (into, out):
        os.close(end)


def test_it_is_an_executor(environment: Environment) -> None:
    assert isinstance(environment, standard.Executor)
    assert list(environment.map(add, [1, 2, 3])) == [2, 3, 4]
    submitted = environment.submit(add, 1, other=3)
    assert isinstance(submitted, standard.Future) and isinstance(submitted, future)
    assert submitted.result(timeout=HANGS_AFTER_S) == 4
    several = [environment.submit(add, number) for number in range(8)]
    assert sorted(one.result() for one in standard.as_completed(several)) == list(range(1, 9))
    told: list[Any] = []
    done = threading.Event()
    failed = environment.submit(fails)
    failed.add_done_callback(told.append)
    failed.add_done_callback(lambda _: done.set())
    assert done.wait(HANGS_AFTER_S) and told == [failed]
    failed.add_done_callback(told.append)
    assert told == [failed, failed]
    for wrong in (failed.set_result, failed.set_exception):
        with pytest.raises(TypeError):
            wrong(None)  # type: ignore[arg-type]


def test_the_first_of_several_by_standard_means(environment: Environment) -> None:
    one, other = Gate(), Gate()
    first, second = environment.submit(one.passes), environment.submit(other.passes)
    for each in (one, other):
        each.has_begun()
    threading.Timer(0.01, other.open).start()
    found = standard.wait([first, second], HANGS_AFTER_S, standard.FIRST_COMPLETED)
    assert found.done == {second} and found.not_done == {first}
    one.open()
    assert standard.wait([first, second], HANGS_AFTER_S).not_done == set()
    for each in (one, other):
        each.close()


def test_it_can_be_awaited(environment: Environment) -> None:
    async def main() -> list[int]:
        wrapped = asyncio.wrap_future(future(add, 2))
        several = await asyncio.gather(future(add, 1), wrapped, future(add, 3))
        with pytest.raises(KeyError):
            await future(fails)
        return list(several)

    assert asyncio.run(main()) == [2, 3, 4]


variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="none")


def test_context_variables_are_carried(environment: Environment) -> None:
    def body() -> str:
        seen = variable.get()
        variable.set("the body's")
        return seen

    token = variable.set("the maker's")
    made = future(body)
    variable.reset(token)
    assert touch(made) == "the maker's"
    assert variable.get() == "none"
    made = future(body)
    assert (wait_for_future(made).result(), variable.get()) == ("none", "none")


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


def test_a_callback_may_touch_another(environment: Environment) -> None:
    first, second = future(add, 1), future(add, 2)
    found: list[int] = []
    told = threading.Event()

    def touches(_: object) -> None:
        found.append(touch(second))
        told.set()

    first.add_done_callback(touches)
    assert touch(first) == 2
    assert told.wait(HANGS_AFTER_S) and found == [3]


def test_somebody_else_may_reap_a_child() -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        with with_new_environment("fork"):
            assert touch(future(add, 1)) == 2
    finally:
        signal.signal(signal.SIGCHLD, before)


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


def test_kills_at_random_lose_nothing() -> None:
    """Prints its seed, with which it can be repeated."""
    seed = int(os.environ.get("FUTURES_SEED") or random.randrange(2**32))
    print(f"FUTURES_SEED={seed}")
    chance = random.Random(seed)
    for kind, count in (("thread", 400), ("fork", 60)):
        with with_new_environment(kind, max_threads=3) as made:
            alive: list[tuple[int, future[int]]] = []
            for number in range(count):
                alive.append((number, future(add, number)))
                if chance.random() < 0.3:
                    alive.append((-1, future(loops)))  # type: ignore[arg-type]
                if chance.random() < 0.5:
                    kill_future(chance.choice(alive)[1], force=chance.random() < 0.5)
            # Those that never end have places that others wait for.
            for number, one in alive:
                if number < 0:
                    kill_future(one)
            for number, one in alive:
                try:
                    assert touch(one) == number + 1
                except FutureKilled:
                    assert one.killed()
            assert wait_for_all_futures(timeout=HANGS_AFTER_S) is not None
            assert made.counts == (0, 0)
            # No capacity is lost.
            gate = Gate()
            several = [future(gate.passes, number) for number in range(3)]
            for _ in range(3):
                gate.has_begun()
            gate.open(3)
            assert [touch(one) for one in several] == [0, 1, 2]
            gate.close()


def test_memory_does_not_grow() -> None:
    with with_new_environment("thread"):
        touch(future(add, 1))
        gc.collect()
        before = len(gc.get_objects())
        for number in range(20_000):
            assert touch(future(add, number)) == number + 1
        gc.collect()
        assert len(gc.get_objects()) < before + 100


# Forks only.


def test_a_child_has_the_state_of_the_call(gate: Gate) -> None:
    with with_new_environment("fork", max_threads=1):
        state = ["before"]
        first = future(gate.passes)
        waits = future(lambda: state[0])
        state[0] = "after"
        gate.open()
        assert (touch(first), touch(waits)) == (None, "before")
        made: list[int] = []
        touch(future(made.append, 1))
        assert made == []


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "ended by SIGKILL"),
        (lambda: os._exit(3), "exited with status 3 before it had an answer"),
        (lambda: sys.exit(4), r"it called sys.exit\(4\)"),
        (lambda: (os.write(2, b"last words\n"), os.abort()), "SIGABRT.*last words"),
        (lambda: lambda: 1, "its result, a function, cannot be pickled"),
    ],
)
def test_a_child_that_has_no_answer_is_told_with_its_cause(body: Any, says: str) -> None:
    with with_new_environment("fork", max_threads=1) as made:
        with pytest.raises(FutureError, match=says):
            touch(future(body))
        assert made.counts == (0, 0)
        # Its place is there again.
        assert touch(future(add, 1)) == 2


class Odd(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


def test_an_error_that_cannot_come_back_says_what_it_was() -> None:
    def raises() -> None:
        raise Odd(1, 2)

    says = r"Odd: 1 and 2 \(which cannot be pickled"
    with with_new_environment("fork"), pytest.raises(FutureError, match=says):
        touch(future(raises))


def test_what_a_child_prints_and_warns_of_is_kept(capfd: pytest.CaptureFixture[str]) -> None:
    def says() -> None:
        print("said")
        os.system("echo by a command")
        warnings.warn("careful", UserWarning, stacklevel=1)

    with with_new_environment("fork") as made:
        one = future(says)
        with pytest.warns(UserWarning, match="careful"):
            touch(one)
        assert made.output(one) == "said\nby a command\n"  # type: ignore[attr-defined]
    assert capfd.readouterr() == ("", "")


def test_large_answers_come_back_whole() -> None:
    with with_new_environment("fork"):
        for size in (0, 1, 65_000, 66_000, 3_000_000):
            assert touch(future(bytes, size)) == bytes(size)
            assert touch(future(bytearray, size)) == bytearray(size)
        several = touch(future(lambda: [bytearray(b"ab") * count for count in (1, 50_000, 7)]))
        assert several == [b"ab", b"ab" * 50_000, b"ab" * 7]
        several[1][0] = 0


def descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


def children() -> list[str]:
    # Those of pytest's own are none.
    listed = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text()
    return listed.split()


def test_nothing_of_a_child_is_left() -> None:
    before, others = descriptors(), children()
    with with_new_environment("fork", max_threads=4):
        several = [future(add, number) for number in range(300)]
        assert sum(touch(one) for one in several) == sum(range(1, 301))
        for _ in range(20):
            future(loops)
        assert kill_all_futures() == 20
        touch(future(bytearray, 200_000))
        with pytest.raises(FutureLost):
            touch(future(os._exit, 1))
    gc.collect()
    assert descriptors() == before
    assert children() == others


def test_a_child_that_does_not_listen_is_killed_all_the_same() -> None:
    def deaf() -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        loops()

    with with_new_environment("fork", max_threads=1):
        one = future(deaf)
        until(one.running)
        time.sleep(0.01)
        assert kill_future(one)
        assert touch(future(add, 1)) == 2
    assert not children()


def test_futures_of_the_parent_in_a_forked_child(gate: Gate) -> None:
    """What waits is run there, what runs is lost, and new ones are as ever."""
    with with_new_environment("thread", max_threads=1):
        running = future(gate.passes)
        gate.has_begun()
        waits = future(add, 1)
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                with pytest.raises(FutureLost):
                    touch(running)
                assert touch(waits) == 2
                assert wait_for_future(future(add, 2)).result() == 3
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(pid, 0)[1] == 0
        gate.open()
        assert touch(waits) == 2


PROGRAMS = {
    "what was begun is done": """
import time
from deconvoy import future
def says(word):
    time.sleep(0.01)
    print(word, flush=True)
for word in ("one", "two", "three"):
    future(says, word)
""",
    "at exit": """
import atexit
from deconvoy import future, touch
import deconvoy.futures as futures
touch(future(int))
@atexit.register
def late():
    print(touch(future(lambda: "one")))
    print(touch(future(lambda: "two")))
    print(futures.wait_for_future(future(lambda: "three")).result())
""",
    "what that begins is done": """
import time
from deconvoy import future
def says(*words):
    time.sleep(0.01)
    print(words[0], flush=True)
    if words[1:]:
        future(says, *words[1:])
future(says, "one", "two", "three")
""",
    "one that is stuck": """
import time
from deconvoy import future
from deconvoy.futures import kill_future
stuck = future(time.sleep, 1000)
while not stuck.running():
    time.sleep(0.001)
time.sleep(0.01)
kill_future(stuck)
print("one two three")
""",
    "with forks": """
from deconvoy import future, touch
import deconvoy.futures as futures
def says(word):
    return word
with futures.with_new_environment("fork"):
    several = [future(says, word) for word in ("one", "two", "three")]
    print(*[touch(one) for one in several], sep="\\n")
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_ends_well(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAMS[name]],
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.split()) == ["one", "three", "two"]


def test_control_c_is_served_while_waiting() -> None:
    program = """
import time
from deconvoy import future, touch
import deconvoy.futures as futures
one = future(time.sleep, 1)
try:
    print("waits", flush=True)
    futures.wait_for_future(one)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    with subprocess.Popen(
        ["env", "--default-signal", sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waits\n"
        time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        assert process.stdout.read() == "interrupted\n"


def test_an_unknown_back_end_is_told() -> None:
    with pytest.raises(ValueError, match=r"no back end 'ray'; there are thread, fork$"):
        with_new_environment("ray")
    for kind in BACKENDS:
        with pytest.raises(ValueError, match="1 or more"):
            with_new_environment(kind, max_threads=-1)


def test_a_value_for_the_process_is_each_threads_own() -> None:
    value = ProcessGlobal({"precision": 17})
    mine = value.get()
    assert value.get() is mine == {"precision": 17}
    others: list[Any] = []
    thread = threading.Thread(target=lambda: others.append(value.get()))
    thread.start()
    thread.join()
    assert others == [mine] and others[0] is not mine
    value.set({"precision": 12})
    assert value.get() == {"precision": 12}
    with pytest.raises((TypeError, AttributeError)):
        value.set(lambda: 1)  # type: ignore[arg-type]
    assert value.get() == {"precision": 12}
    by_hand = ProcessGlobal([1], copy=list)
    assert by_hand.get() == [1]
    with pytest.raises(TypeError):
        ProcessGlobal(3, copy=list).get()  # type: ignore[arg-type]
