"""A series on the machines of a Dask cluster: one run at a time on each.

What is compared stays together: all runs of a scenario in the versions of one runtime are made on
one machine. Every run says which; nothing is compared across two.
"""

from __future__ import annotations

import fcntl
import itertools
import platform
import queue
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from deconvoy import __version__, output
from deconvoy.bench import machine, runtimes
from deconvoy.bench.languages import Installed
from deconvoy.bench.results import Journal, Result, Run
from deconvoy.bench.runtimes import Runtime, choose
from deconvoy.bench.scenario import Case
from deconvoy.bench.series import Sayer, run_once, still_to_run
from deconvoy.errors import UserError
from deconvoy.interpreters import Interpreter
from deconvoy.output import counted

# A worker's: what has run there is remembered from run to run.
QUIET = machine.Quiet(lambda foreign_cores: None)

# How often it is looked whether the workers are still there, in seconds.
LOOK_S = 1.0

# So long it is waited for a scheduler, in seconds.
CONNECT_S = 10


@dataclass
class Told:
    """What a worker says of its machine."""

    version: str
    node: str
    about: dict[str, Any]
    found: dict[str, Interpreter | Installed]
    missing: dict[str, str]


@dataclass
class Machine:
    """One that has a worker."""

    name: str
    worker: str
    told: Told


def tell() -> Told:
    """In a worker."""
    found, missing = runtimes.available()
    return Told(__version__, platform.node(), machine.describe(), found, missing)


def run_there(case: dict[str, Any], number: int, seed: int) -> dict[str, Any]:
    """In a worker: one run, while no other is made on this machine; what is told of it."""
    chosen, missing = choose([case["runtime"]])
    if not chosen:
        why = "; ".join(missing.values())
        lacking = Runtime(case["runtime"], "")
        return {"skipped": (Case(**case | {"runtime": lacking}).kind, why)}
    with alone() as at_once:
        if not at_once:
            # Another's run has just ended.
            QUIET.ran(quiet=False)
        said = run_once(Case(**case | {"runtime": chosen[0]}), number, seed, QUIET)
    return {kind: asdict(one) if isinstance(one, Run) else one for kind, one in said.items()}


@contextmanager
def alone() -> Iterator[bool]:
    """A machine is one slot, whatever workers and clusters it has. Gives whether it was free."""
    # Not in a home, which machines may share.
    place = Path(tempfile.gettempdir(), "deconvoy-bench.lock")
    if not place.exists():
        place.touch(mode=0o644)
    with place.open("rb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            at_once = True
        except BlockingIOError:
            fcntl.flock(lock, fcntl.LOCK_EX)
            at_once = False
        yield at_once


class Cluster:
    """The machines at an address, as long as it is open.

    Raises UserError when nobody answers there, no worker is there, or one has another deconvoy.
    """

    def __init__(self, address: str) -> None:
        try:
            import distributed
        except ImportError as error:
            raise UserError("--cluster needs Dask: pip install 'deconvoy[cluster]'") from error
        self.address = address
        try:
            # A client of no address complains again when it is collected.
            distributed.comm.resolve_address(address)
        except (OSError, ValueError) as error:
            raise UserError(f"--cluster {address}: {error}: tcp://HOST:PORT") from error
        try:
            self.client = distributed.Client(address, timeout=CONNECT_S, set_as_default=False)
        except (OSError, TypeError, ValueError) as error:
            raise UserError(f"--cluster {address}: no scheduler answers there") from error
        try:
            self.machines = self._find()
        except BaseException:
            self.close()
            raise

    def workers(self) -> list[str]:
        workers: dict[str, Any] = self.client.scheduler_info(n_workers=-1)["workers"]
        return sorted(workers)

    def _find(self) -> dict[str, Machine]:
        by_host: dict[str, str] = {}
        for worker in self.workers():
            by_host.setdefault(worker.rpartition(":")[0], worker)
        if not by_host:
            raise UserError(f"--cluster {self.address}: no worker: start one, dask worker ADDRESS")
        try:
            said: dict[str, Told] = self.client.run(tell, workers=list(by_host.values()))
        except (ImportError, AttributeError) as error:
            raise UserError(f"--cluster {self.address}: a worker has no deconvoy") from error
        found: dict[str, Machine] = {}
        for host, worker in by_host.items():
            told = said[worker]
            if told.version != __version__:
                raise UserError(f"{worker} has deconvoy {told.version}, and this is {__version__}")
            # Containers, for one, may have one name.
            name = told.node if told.node not in found else host.rpartition("/")[2]
            found[name] = Machine(name, worker, told)
        return found

    def available(self) -> tuple[dict[str, Interpreter | Installed], dict[str, str]]:
        """What any of the machines has, and what none has."""
        found: dict[str, Interpreter | Installed] = {}
        missing: dict[str, str] = {}
        for one in self.machines.values():
            found = one.told.found | found
            missing |= one.told.missing
        lacking = {name: why for name, why in missing.items() if not has(found, name)}
        return found, lacking

    def close(self) -> None:
        self.client.close()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def has(found: dict[str, Interpreter | Installed], language: str) -> bool:
    several = (one for one in found.values() if isinstance(one, Installed))
    return any(one.language.name == language for one in several)


def stem(case: Case) -> str:
    """A runtime without its policy."""
    return case.runtime.name.partition("+")[0]


@dataclass
class Group:
    """Runs that are compared with one another: they are made on one machine."""

    name: str
    runtime: str
    left: list[tuple[int, Case]]


def groups(left: list[tuple[int, Case]]) -> list[Group]:
    made: dict[tuple[str, str], Group] = {}
    for number, case in left:
        scenario = case.scenario.partition("-")[0]
        key = scenario, stem(case)
        group = made.setdefault(key, Group(f"{scenario} {stem(case)}", stem(case), []))
        group.left.append((number, case))
    return list(made.values())


def execute_on(
    cluster: Cluster, result: Result, cases: list[Case], path: Path, console: Console
) -> None:
    """As `series.execute`, on the machines of a cluster. What a machine that is lost had to do is
    done by another.

    Raises UserError when the last machine is lost.
    """
    result.settings["cases"] = [case.data() for case in cases]
    left = list(still_to_run(result, cases))
    machines = counted(len(cluster.machines), "machine")
    console.print(
        f"deconvoy: {counted(len(left), 'run')} on {machines}; "
        f"results go to {output.plain(str(path))} as they come",
        soft_wrap=True,
    )
    sayer = Sayer(len(left), min(len(cases), len(left)), console, time.monotonic())
    with Journal(result, path) as journal, output.bar(console) as progress:
        task = progress.add_task(
            "", total=result.settings["rounds"] * len(cases), completed=len(result.runs)
        )
        for one in cluster.machines.values():
            journal.take(machine=(one.name, one.told.about))
        dispatcher = Dispatcher(cluster, groups(left), result.settings["seed"])
        for count, (name, said) in enumerate(dispatcher, 1):
            said = said | {"run": said["run"] | {"machine": name}} if "run" in said else said
            journal.take(**said)
            progress.update(task, completed=len(result.runs), description=name)
            sayer.done(count, time.monotonic())


class Dispatcher:
    """Gives groups to machines, one run at a time to each; yields what they tell."""

    def __init__(self, cluster: Cluster, waiting: list[Group], seed: int) -> None:
        self._cluster = cluster
        self._waiting = waiting
        self._seed = seed
        self._running: dict[Any, tuple[Machine, Group, int, Case]] = {}
        self._told: set[str] = set()
        self._done: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def __iter__(self) -> Iterator[tuple[str, dict[str, Any]]]:
        import distributed

        for one in self._cluster.machines.values():
            self._give(one)
        looked_s = time.monotonic()
        while self._running:
            with suppress(queue.Empty):
                self._done.get(timeout=LOOK_S)
            for future in [one for one in self._running if one.done()]:
                done_by, group, _, case = self._running.pop(future)
                said: dict[str, Any]
                try:
                    said = future.result()
                except (distributed.KilledWorker, CancelledError):
                    said = {"failed": (case.name, "its worker has ended")}
                except (OSError, UserError) as error:
                    said = {"failed": (case.name, str(error))}
                for told in said.keys() - {"run"}:
                    name, reason = said[told]
                    self._told.add(name)
                    said = {told: (name, f"on {done_by.name}: {reason}")}
                yield done_by.name, said
                self._give(done_by, group)
            if time.monotonic() - looked_s > LOOK_S:
                looked_s = time.monotonic()
                self._look_for_lost()
        for group in self._waiting:
            yield "", {"failed": (group.name, "no machine that is left in the cluster has it")}

    def _give(self, to: Machine, group: Group | None = None) -> None:
        """The next run of its group, or of one that waits."""
        fitting = (one for one in self._waiting if one.runtime in to.told.found or is_ours(one))
        for one in itertools.chain([group] if group else [], list(fitting)):
            if one in self._waiting:
                self._waiting.remove(one)
            while one.left:
                number, case = one.left.pop(0)
                if {case.name, case.kind} & self._told:
                    continue
                future = self._cluster.client.submit(
                    run_there,
                    *(case.data(), number, self._seed + number),
                    workers=[to.worker],
                    allow_other_workers=False,
                    pure=False,
                )
                self._running[future] = to, one, number, case
                future.add_done_callback(self._done.put)
                return

    def _look_for_lost(self) -> None:
        """What a machine whose worker is gone had begun is for another one."""
        there = self._cluster.workers()
        for future, (lost, group, number, case) in list(self._running.items()):
            if lost.worker in there or future.done():
                continue
            future.cancel()
            del self._running[future]
            del self._cluster.machines[lost.name]
            group.left.insert(0, (number, case))
            self._waiting.insert(0, group)
        idle = [
            one
            for one in self._cluster.machines.values()
            if all(one is not busy for busy, *_ in self._running.values())
        ]
        for one in idle:
            self._give(one)
        if not self._cluster.machines:
            raise UserError("the cluster has no machine left: go on with --resume when it has")


def is_ours(group: Group) -> bool:
    """What comes with deconvoy: the lab, the simulator."""
    return group.runtime.partition(":")[0] in ("lab", "sim")
