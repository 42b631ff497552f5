"""The bench on a real Dask cluster: two workers that are two machines, as far as it can tell."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from commandline import Deconvoy
from deconvoy.bench import series
from deconvoy.bench.results import load
from deconvoy.bench.runtimes import choose
from deconvoy.bench.scenario import Case
from rich.console import Console

pytest.importorskip("distributed", reason="a cluster of Dask")

HANGS_AFTER_S = 60


@dataclass
class Cluster:
    address: str
    scheduler_file: Path
    processes: list[subprocess.Popen[bytes]]

    def begin(self, part: str, *options: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", f"distributed.cli.dask_{part}", *options]
        command += ["--scheduler-file", str(self.scheduler_file), "--no-dashboard"]
        quiet = subprocess.DEVNULL
        self.processes.append(subprocess.Popen(command, stdout=quiet, stderr=quiet))
        return self.processes[-1]

    def worker(self, host: str) -> subprocess.Popen[bytes]:
        return self.begin("worker", "--host", host, "--nthreads", "2", "--no-nanny")


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    made = Cluster("", tmp_path / "scheduler.json", [])
    made.begin("scheduler", "--host", "127.0.0.1", "--port", "0")
    deadline = time.monotonic() + HANGS_AFTER_S
    while not made.address:
        assert time.monotonic() < deadline
        time.sleep(0.05)
        if made.scheduler_file.exists() and (text := made.scheduler_file.read_text()):
            made.address = json.loads(text)["address"]
    try:
        yield made
    finally:
        for process in made.processes:
            process.kill()
            process.wait()


def wait_for(cluster: Cluster, count: int) -> None:
    import distributed

    with distributed.Client(cluster.address, set_as_default=False) as client:
        client.wait_for_workers(count, timeout=HANGS_AFTER_S)


def test_a_sweep_on_two_machines_is_one_result(
    cluster: Cluster, deconvoy: Deconvoy, tmp_path: Path
) -> None:
    for host in ("127.0.0.1", "127.0.0.2"):
        cluster.worker(host)
    wait_for(cluster, 2)
    common = ["countdown", "--work", "20000", "--runs", "2", "--workers", "2"]
    runtimes = ["--runtime", "c", "--runtime", "lab:std", "--runtime", "cpython3.11*"]
    place = tmp_path / "result.jsonl"
    done = deconvoy("bench", *common, *runtimes, "--cluster", cluster.address, "-o", place)
    assert done.returncode == 0, done.stderr
    result = load(place)
    assert len(result.machines) == 2
    assert all("processor" in about for about in result.machines.values())
    assert {run.machine for run in result.runs} <= set(result.machines)
    # Each run once, and what is compared on one machine.
    assert set(Counter(run.order for run in result.runs).values()) == {1}
    where: dict[str, set[str]] = {}
    for run in result.runs:
        where.setdefault(run.runtime.partition("+")[0], set()).add(run.machine)
    assert all(len(machines) == 1 for machines in where.values())
    assert len(result.runs) == result.settings["rounds"] * len(result.settings["cases"])
    assert " on " in done.stdout


def test_what_a_lost_machine_had_to_do_is_done_by_another(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from deconvoy.bench import cluster as clusters

    first = cluster.worker("127.0.0.1")
    wait_for(cluster, 1)
    cluster.worker("127.0.0.2")
    wait_for(cluster, 2)
    chosen, _ = choose(["lab:std", "lab:pthread", "lab:parking_lot"])
    cases = [Case("countdown", one, 2, 20_000, mode="thread") for one in chosen]
    result = series.new_result(chosen, {}, {"rounds": 4, "seed": 1})
    given: list[str] = []
    give = clusters.Dispatcher._give

    def giving(self: clusters.Dispatcher, to: clusters.Machine, group: Any = None) -> None:
        """The first machine is lost with what it has been given for the second time."""
        give(self, to, group)
        given.append(to.worker)
        if sum("127.0.0.1" in worker for worker in given) == 2:
            first.kill()

    monkeypatch.setattr(clusters.Dispatcher, "_give", giving)
    path = tmp_path / "result.jsonl"
    with clusters.Cluster(cluster.address) as machines:
        lost = next(one.name for one in machines.machines.values() if "127.0.0.1" in one.worker)
        clusters.execute_on(machines, result, cases, path, Console(file=io.StringIO()))
    found = load(path)
    assert sorted(run.order for run in found.runs) == list(range(12))
    begun = [run for run in found.runs if run.machine == lost]
    # One was made there; the one that was given next, and the rest of its group, elsewhere.
    assert 1 <= len(begun) <= 2
    runtime = begun[0].runtime
    assert {run.machine for run in found.runs if run.runtime == runtime} == set(found.machines)


def test_mistakes_are_told(cluster: Cluster, deconvoy: Deconvoy, tmp_path: Path) -> None:
    common = ["bench", "countdown", "--runtime", "c", "-o", tmp_path / "r.jsonl", "--cluster"]
    for address, says in (
        (cluster.address, "no worker: start one"),
        ("tcp://127.0.0.1:1", "no scheduler answers there"),
        ("nowhere", "missing port number in address 'nowhere': tcp://HOST:PORT"),
    ):
        done = deconvoy(*common, address)
        assert done.returncode == 2, done.stderr
        assert says in done.stderr and done.stderr.count("\n") == 1
    done = deconvoy(*common, cluster.address, "--traces", tmp_path)
    assert done.returncode == 2 and "leave it out with --cluster" in done.stderr
    assert not (tmp_path / "r.jsonl").exists()
