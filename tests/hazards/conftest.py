"""Two runs at a time, begun in the order in which the tests will ask for them."""

from __future__ import annotations

import os
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


@pytest.fixture(scope="session")
def runs(request: pytest.FixtureRequest, built: dict[str, Path]) -> Iterator[Runs]:
    """A future result for each chosen test that has a `case`."""
    with ThreadPoolExecutor(max(1, min(2, os.cpu_count() or 1))) as pool:
        futures: Runs = {}
        for item in request.session.items:
            case = getattr(item, "callspec", None) and item.callspec.params.get("case")
            if case is not None:
                start: Callable[..., Any] = case.start
                futures[item.nodeid] = pool.submit(start, built)
        yield futures
        for future in futures.values():
            future.cancel()


@pytest.fixture
def result(request: pytest.FixtureRequest, runs: Runs) -> harness.Result:
    return runs[request.node.nodeid].result()
