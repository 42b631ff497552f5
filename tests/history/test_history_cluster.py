"""History on a real Dask cluster: two workers that are two machines, as far as it can tell."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from commandline import Deconvoy
from tiny import repository, write

pytest.importorskip("distributed", reason="a cluster of Dask")

HANGS_AFTER_S = 60


@dataclass
class Workers:
    """A scheduler with two workers, each with a cache of its own."""

    folder: Path
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def begin(self, part: str, *options: str, cache: str = "cache") -> None:
        command = [sys.executable, "-m", f"distributed.cli.dask_{part}", *options]
        command += ["--scheduler-file", str(self.folder / "scheduler.json"), "--no-dashboard"]
        quiet = subprocess.DEVNULL
        environment = os.environ | {"XDG_CACHE_HOME": str(self.folder / cache)}
        process = subprocess.Popen(command, stdout=quiet, stderr=quiet, env=environment)
        self.processes.append(process)

    def address(self) -> str:
        deadline = time.monotonic() + HANGS_AFTER_S
        file = self.folder / "scheduler.json"
        while not (file.exists() and file.read_text()):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        address: str = json.loads(file.read_text())["address"]
        return address


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Workers]:
    import distributed

    workers = Workers(tmp_path)
    try:
        workers.begin("scheduler", "--host", "127.0.0.1", "--port", "0")
        address = workers.address()
        for host in ("127.0.0.1", "127.0.0.2"):
            workers.begin(
                "worker", "--host", host, "--nthreads", "2", "--no-nanny", cache=f"cache-{host}"
            )
        with distributed.Client(address, set_as_default=False) as client:
            client.wait_for_workers(2, timeout=HANGS_AFTER_S)
        yield workers
    finally:
        for process in workers.processes:
            process.kill()
            process.wait()


@pytest.fixture
def cluster(workers: Workers) -> str:
    return workers.address()


def test_builds_and_runs_are_made_by_the_workers(
    cluster: str, deconvoy: Deconvoy, tmp_path: Path
) -> None:
    several = [{"level": "10"}, {"docs": "x"}, {"level": "10 "}, {"build": "false"}]
    several += [{"build": "true", "level": "20"}, {"level": "20 "}, {"level": "20  "}]
    repository(tmp_path / "repository", several)
    write(tmp_path)
    # Compilers and make heed some variables: those of here, not of the workers.
    here = {"XDG_CACHE_HOME": str(tmp_path / "here"), "MAKEFLAGS": "-j3"}
    done = deconvoy("history", "find", "--cluster", cluster, "--json", env=here)
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)
    # The broken one, and that after it.
    assert [one["message"] for one in found["revisions"]] == ["Step 3", "Step 4"]
    swept = deconvoy("history", "run", "--cluster", cluster, "--json", env=here)
    assert swept.returncode == 0, swept.stderr
    rows = json.loads(swept.stdout)["revisions"]
    middles = [one["metric"] and one["metric"]["median"] for one in rows]
    assert middles == [10, 10, 10, None, 20, 20, 20]
    assert all(len(one["samples"]) >= 2 for one in rows if one["metric"])
    # Nothing was built here, and both machines have measured the oldest.
    assert not list((tmp_path / "here").glob("deconvoy/history/builds/*/done.json"))
    builds = [set(builds_of(tmp_path / f"cache-127.0.0.{number}")) for number in (1, 2)]
    assert rows[0]["build"] in builds[0] & builds[1]
    assert builds[0] | builds[1] == {one["build"] for one in rows if one["metric"]}


def test_a_worker_that_is_lost_is_done_without(
    workers: Workers, deconvoy: Deconvoy, tmp_path: Path
) -> None:
    """One of two ends in the middle of a build; the other one does its part."""
    marker = tmp_path / "lost"
    # The build of the first worker ends that worker.
    victim = workers.processes[1].pid
    build = f'case "$PWD" in *cache-127.0.0.1*) touch {marker}; kill -9 {victim}; sleep 9;; esac'
    several = [{"level": "10", "build": build}, *({"level": "10" + " " * n} for n in range(1, 4))]
    repository(tmp_path / "repository", [*several, {"level": "20"}])
    write(tmp_path)
    here = {"XDG_CACHE_HOME": str(tmp_path / "here")}
    done = deconvoy("history", "find", "--cluster", workers.address(), "--json", env=here)
    assert marker.exists()
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)
    assert [one["message"] for one in found["revisions"]] == ["Step 4"]


def builds_of(cache: Path) -> list[str]:
    found = cache.glob("deconvoy/history/builds/*/done.json")
    return [path.parent.name for path in found]


def test_a_cluster_that_is_not_there_is_told(deconvoy: Deconvoy, tmp_path: Path) -> None:
    repository(tmp_path / "repository", [{"level": "1"}, {"level": "2"}])
    write(tmp_path)
    done = deconvoy("history", "find", "--cluster", "nowhere")
    assert done.returncode == 2
    assert "--cluster nowhere" in done.stderr.splitlines()[-1]
