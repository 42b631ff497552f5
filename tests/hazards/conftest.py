"""Two runs at a time, begun in the order in which the tests will ask for them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import harness
import pytest

Runs = dict[str, "Future[harness.Result]"]


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("built")
    harness.library()
    return {
        "helper": harness.compile_c("helper.c", "helper.so", folder, "-shared", "-fPIC"),
        "embed": harness.compile_c("embed.c", "embed", folder),
        "plain": harness.compile_c("plain.c", "plain", folder),
        "plain_static": harness.compile_c("plain.c", "plain_static", folder, "-static"),
        "secure": harness.compile_c("secure.c", "secure", folder),
    }


# How many programs run at a time.
PLACES = 2
free = threading.Semaphore(PLACES)
queue = threading.Lock()


def in_turn(start: Callable[..., Any], built: dict[str, Path], places: int) -> Any:
    """Starts a program when so many places are free; in order, so that one that needs all waits
    for no more than those before it."""
    with queue:
        for _ in range(places):
            free.acquire()
    try:
        return start(built)
    finally:
        free.release(places)


@pytest.fixture(scope="session")
def runs(request: pytest.FixtureRequest, built: dict[str, Path]) -> Iterator[Runs]:
    """A future result for each chosen test that has a `case`."""
    with ThreadPoolExecutor(max(1, min(PLACES, os.cpu_count() or 1))) as pool:
        futures: Runs = {}
        for item in request.session.items:
            case = getattr(item, "callspec", None) and item.callspec.params.get("case")
            if case is not None:
                places = PLACES if getattr(case, "is_alone", False) else 1
                futures[item.nodeid] = pool.submit(in_turn, case.start, built, places)
        yield futures
        for future in futures.values():
            future.cancel()


@pytest.fixture
def result(request: pytest.FixtureRequest, runs: Runs) -> harness.Result:
    return runs[request.node.nodeid].result()
