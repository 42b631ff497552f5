"""joblib on our futures."""

from __future__ import annotations

import multiprocessing
import os
import time
from typing import Any

import pytest
from bodies import add, fails

joblib = pytest.importorskip("joblib", reason="its back end needs joblib")

import deconvoy.futures.joblib  # noqa: E402


@pytest.fixture(params=["thread", "fork", "dask"])
def options(request: pytest.FixtureRequest) -> dict[str, Any]:
    kind = request.param
    return {"kind": kind} | (
        {"address": request.getfixturevalue("cluster")} if kind == "dask" else {}
    )


def both(number: int) -> list[int]:
    """Runs parallel code itself."""
    return list(joblib.Parallel(n_jobs=2)(joblib.delayed(add)(number, one) for one in range(2)))


def test_it_runs_what_joblib_is_given(options: dict[str, Any]) -> None:
    with joblib.parallel_config("deconvoy", n_jobs=2, **options):
        parallel = joblib.Parallel()
        assert parallel(joblib.delayed(add)(number) for number in range(50)) == list(range(1, 51))
        where = joblib.Parallel()(joblib.delayed(os.getpid)() for _ in range(4))
        assert (os.getpid() in where) == (options["kind"] == "thread")
        with pytest.raises(KeyError, match="that"):
            joblib.Parallel()(joblib.delayed(fails)() for _ in range(3))
        with pytest.raises(multiprocessing.TimeoutError):
            joblib.Parallel(timeout=0.01)(joblib.delayed(time.sleep)(1) for _ in range(2))
        found = joblib.Parallel(return_as="generator")(joblib.delayed(add)(one) for one in range(3))
        assert list(found) == [1, 2, 3]
        assert joblib.Parallel()(joblib.delayed(both)(one) for one in (1, 2)) == [[1, 2], [2, 3]]


def test_how_many_jobs() -> None:
    backend = deconvoy.futures.joblib.DeconvoyBackend()
    cores = len(os.sched_getaffinity(0))
    assert [backend.effective_n_jobs(count) for count in (None, 3, -1)] == [1, 3, cores]
    with pytest.raises(ValueError, match="n_jobs == 0"):
        backend.effective_n_jobs(0)
