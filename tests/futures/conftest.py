"""What the tests of futures share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from bodies import BACKENDS, Gate
from deconvoy.futures import Environment, with_new_environment


@pytest.fixture(params=BACKENDS)
def environment(request: pytest.FixtureRequest) -> Iterator[Environment]:
    with with_new_environment(request.param, max_threads=2) as made:
        yield made


@pytest.fixture
def gate() -> Iterator[Gate]:
    made = Gate()
    yield made
    made.close()
