"""The machine a result was measured on, and what else it did meanwhile."""

from __future__ import annotations

import hashlib
import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

# A run counts when other processes used less than this meanwhile, in cores.
QUIET_CORES = 0.2

# The kernel counts processor time in ticks: of two counts each may be off by one, in seconds.
RESOLUTION_S = 2 / os.sysconf("SC_CLK_TCK")

# How long to wait for a quiet machine before a run, in seconds, and how long to look.
PATIENCE_S = 20.0
LOOK_S = 0.2
SAY_AFTER_S = 2.0


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return None


def _processor() -> str:
    for line in (_read("/proc/cpuinfo") or "").splitlines():
        if line.startswith(("model name", "Model")):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _identity() -> str | None:
    """What tells this machine from others of its kind, and not which it is."""
    known = _read("/etc/machine-id")
    return hashlib.sha256(known.encode()).hexdigest()[:12] if known else None


def describe() -> dict[str, Any]:
    """The machine, as it goes into every result: what a reader needs to judge the numbers."""
    cpuinfo = _read("/proc/cpuinfo") or ""
    return {
        "processor": _processor(),
        "cores_available": len(os.sched_getaffinity(0)),
        "cores": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "machine_id": _identity(),
        "libc": " ".join(platform.libc_ver()),
        "governor": _read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "virtual_machine": " hypervisor" in cpuinfo,
        "load_at_start": list(os.getloadavg()),
        "python": platform.python_version(),
    }


def doubts(machine: dict[str, Any], runnable: int = 0) -> list[str]:
    """What a reader should know beside the numbers: `runnable` threads want a core at a time."""
    found = []
    cores = machine.get("cores_available") or runnable
    if runnable > cores:
        found.append(f"up to {runnable} runnable threads share {cores} cores")
    if machine.get("virtual_machine"):
        found.append("a virtual machine: wake-ups are slow, and neighbours may take the processor")
    if machine.get("governor") not in (None, "performance"):
        found.append(f"the frequency governor is {machine['governor']}: speed changes with load")
    load = machine.get("load_at_start") or [0.0]
    if load[0] > 0.5:
        found.append(f"the load was {load[0]:.1f} at the start")
    return found


def _busy_s() -> float:
    """Processor time that the whole machine has used since it started, in seconds."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - getattr(times, "iowait", 0.0))


def _family_s() -> float:
    """Processor time that this process and its children have used, in seconds."""
    total = 0.0
    me = psutil.Process()
    for process in [me, *me.children(recursive=True)]:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


@dataclass
class Watch:
    """Foreign load between its making and `foreign_cores`: what others used meanwhile."""

    began: float
    busy_s: float
    family_s: float

    @classmethod
    def start(cls) -> Watch:
        return cls(time.monotonic(), _busy_s(), _family_s())

    def foreign_cores(self) -> float:
        elapsed = max(time.monotonic() - self.began, 1e-3)
        foreign = (_busy_s() - self.busy_s) - (_family_s() - self.family_s)
        return max(foreign - RESOLUTION_S, 0.0) / elapsed


class Quiet:
    """Waits for quiet before each run of a series. Where that has not come within `PATIENCE_S`, it
    is not waited for as long again before each of hundreds of runs, but looked for. A run beside
    which it was quiet is as good as a look: the next one begins at once."""

    def __init__(self, say: Callable[[float], None]) -> None:
        self._say = say
        self._patience_s = PATIENCE_S
        self._until_s = 0.0

    def ran(self, quiet: bool) -> None:
        """Whether it was quiet beside a run that has just ended."""
        self._until_s = time.monotonic() + LOOK_S if quiet else 0.0

    def __call__(self) -> bool:
        if time.monotonic() < self._until_s:
            return True
        came = wait_for_quiet(self._say, self._patience_s)
        self._patience_s = PATIENCE_S if came else 0.0
        return came


def wait_for_quiet(
    say: Callable[[float], None] = lambda foreign_cores: None, patience_s: float = PATIENCE_S
) -> bool:
    """Waits until other processes use less than `QUIET_CORES`; False when that has not come within
    `patience_s` seconds. `say` is called once, with the cores that they use, when the wait is
    longer than a moment."""
    begun = time.monotonic()
    said = False
    deadline = time.monotonic() + patience_s
    while True:
        watch = Watch.start()
        time.sleep(LOOK_S)
        foreign = watch.foreign_cores()
        if foreign < QUIET_CORES:
            return True
        if not said and time.monotonic() - begun > SAY_AFTER_S:
            said = True
            say(foreign)
        if time.monotonic() > deadline:
            return False
