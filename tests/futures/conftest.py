"""What the tests of futures share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from bodies import BACKENDS, Gate, Opens
from deconvoy.futures import Environment, make_environment, with_new_environment


@pytest.fixture(scope="session")
def cluster() -> Iterator[str]:
    """The address of one on this machine."""
    pytest.importorskip("distributed", reason="futures on a cluster need Dask")
    environment = make_environment("dask", max_threads=4)
    client = environment._connected()  # type: ignore[attr-defined]
    client.wait_for_workers(4)
    yield environment._cluster.scheduler_address  # type: ignore[attr-defined]
    environment.shutdown()


@pytest.fixture(params=BACKENDS)
def opens(request: pytest.FixtureRequest) -> Opens:
    """Opens an environment of each kind."""
    options: dict[str, str] = {}
    if request.param == "dask":
        options["address"] = request.getfixturevalue("cluster")
    return lambda max_threads: with_new_environment(
        request.param, max_threads=max_threads, **options
    )


@pytest.fixture
def environment(opens: Opens) -> Iterator[Environment]:
    with opens(max_threads=2) as made:
        yield made


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    made = Gate(tmp_path)
    yield made
    made.close()
