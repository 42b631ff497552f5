"""Futures by the means of the standard library: executors, waiting, asyncio, contexts."""

from __future__ import annotations

import asyncio
import concurrent.futures as standard
import contextvars
import threading
from pathlib import Path
from typing import Any

import pytest
from bodies import HANGS_AFTER_S, Gate, add, fails
from deconvoy.futures import Environment, FutureError, future, touch, wait_for_future

variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="none")


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


def test_the_first_of_several_by_standard_means(environment: Environment, tmp_path: Path) -> None:
    one, other = Gate(tmp_path / "one"), Gate(tmp_path / "other")
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


def test_context_variables_are_carried(environment: Environment) -> None:
    def body() -> str:
        seen = variable.get()
        variable.set("the body's")
        return seen

    if environment.kind == "dask":
        # They are of one process, and that is told.
        with pytest.raises(FutureError, match="body or its arguments cannot be pickled"):
            touch(future(body))
        return
    token = variable.set("the maker's")
    made = future(body)
    variable.reset(token)
    assert touch(made) == "the maker's"
    assert variable.get() == "none"
    made = future(body)
    assert (wait_for_future(made).result(), variable.get()) == ("none", "none")


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
