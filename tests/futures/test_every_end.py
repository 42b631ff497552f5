"""Hooks, ends of environments, and kills at random, on each back end."""

from __future__ import annotations

import os
import random
from typing import Any

import pytest
from bodies import HANGS_AFTER_S, Gate, Opens, add, loops, until
from deconvoy import futures
from deconvoy.futures import (
    Environment,
    FutureKilled,
    future,
    kill_future,
    touch,
    wait_for_all_futures,
    wait_for_future,
    with_new_environment,
)

# Futures of `test_kills_at_random_lose_nothing`.
MANY_KILLS = {"thread": 400, "fork": 60, "dask": 40}


def test_an_interrupted_block_waits_for_nothing(opens: Opens) -> None:
    several: list[future[Any]] = []

    def interrupted() -> None:
        with opens(max_threads=1):
            several.extend(future(loops) for _ in range(2))
            until(several[0].running)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [one.status for one in several] == ["killed", "killed"]


# How threads tell of a hook that fails at the end.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
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
    is_here = environment.kind != "fork"
    said = b""
    while said.count(b"\n") < 2:
        said += os.read(into, 100)
    assert said.decode() == f"before running {is_here}\nafter\n"
    # One that fails at the end is told of, and the result stands.
    futures.before_start_hooks.clear()
    futures.after_finish_hooks[:] = [lambda one: 1 / 0, after]
    assert touch(future(add, 1)) == 2
    assert os.read(into, 100) == b"after\n"
    # One that fails before is the future's error.
    futures.before_start_hooks[:] = [lambda one: 1 / 0]
    futures.after_finish_hooks.clear()
    with pytest.raises(ZeroDivisionError):
        touch(future(add, 1))
    for end in (into, out):
        os.close(end)


def test_kills_at_random_lose_nothing(opens: Opens, gate: Gate) -> None:
    """Prints its seed, with which it can be repeated."""
    seed = int(os.environ.get("FUTURES_SEED") or random.randrange(2**32))
    print(f"FUTURES_SEED={seed}")
    chance = random.Random(seed)
    with opens(max_threads=3) as made:
        alive: list[tuple[int, future[int]]] = []
        for number in range(MANY_KILLS[made.kind]):
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
        several = [future(gate.passes, number) for number in range(3)]
        for _ in range(3):
            gate.has_begun()
        gate.open(3)
        assert [touch(one) for one in several] == [0, 1, 2]


def test_an_unknown_back_end_is_told() -> None:
    with pytest.raises(ValueError, match=r"no back end 'ray'; there are thread, fork, dask$"):
        with_new_environment("ray")
    for kind in ("thread", "fork"):
        with pytest.raises(ValueError, match="1 or more"):
            with_new_environment(kind, max_threads=-1)
