"""What the kernel accounts to a child: processor time, switches, faults, memory."""

from __future__ import annotations

import resource
import threading
from contextlib import suppress
from pathlib import Path

# How often the memory of a run is looked at, in seconds.
LOOK_EVERY_S = 0.05


class Memory:
    """What a child and those that it makes take while it runs: looked at now and then.

    Of the largest process, the most it ever had resident: by the kernel's accounting when all have
    ended, which begins with what the child shared with us before it began its program; where it is
    no more than ours, the child's own (VmHWM). Of all of them, and of what the kernel needs for
    them, how much less memory the whole machine had to give.
    """

    def __init__(self, pid: int) -> None:
        self._status = Path(f"/proc/{pid}/status")
        self._begun = self._least = available_bytes()
        self._resident = 0
        self._ended = threading.Event()
        self._looker = threading.Thread(target=self._look, daemon=True)
        self._looker.start()

    def _look(self) -> None:
        while not self._ended.wait(LOOK_EVERY_S):
            self._least = min(self._least, available_bytes())
            with suppress(OSError):
                self._resident = max(self._resident, _field(self._status, "VmHWM:"))

    def close(self) -> None:
        self._ended.set()
        self._looker.join()

    def taken(self, usage: resource.struct_rusage) -> dict[str, float]:
        """What was seen. `usage`: what the kernel accounted to the child in the end."""
        self.close()
        found = {"machine_memory_bytes": float(self._begun - self._least)}
        # No more than we have had ourselves: that may be ours.
        is_its_own = usage.ru_maxrss > resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        if resident := usage.ru_maxrss * 1024 if is_its_own else self._resident:
            found["peak_memory_bytes"] = float(resident)
        return found


def available_bytes() -> int:
    """What the machine could give to a program without taking it from another."""
    return _field(Path("/proc/meminfo"), "MemAvailable:")


def _field(path: Path, name: str) -> int:
    """A line of a file of the kernel's that gives KiB, in bytes; 0 without such a line."""
    _, found, rest = path.read_text().partition(name)
    return int(rest.split(maxsplit=1)[0]) * 1024 if found else 0


def accounting(usage: resource.struct_rusage) -> dict[str, float]:
    """What the kernel accounted to a child that has ended."""
    return {
        "user_s": usage.ru_utime,
        "system_s": usage.ru_stime,
        "voluntary_switches": usage.ru_nvcsw,
        "involuntary_switches": usage.ru_nivcsw,
        "minor_faults": usage.ru_minflt,
        "major_faults": usage.ru_majflt,
    }


def switches(pid: int) -> tuple[int, int]:
    """Voluntary and involuntary context switches of all live threads of a process so far."""
    voluntary = involuntary = 0
    for status in Path(f"/proc/{pid}/task").glob("*/status"):
        try:
            lines = status.read_text().splitlines()
        except OSError:
            continue
        for line in lines:
            if line.startswith("voluntary_ctxt_switches:"):
                voluntary += int(line.split()[1])
            elif line.startswith("nonvoluntary_ctxt_switches:"):
                involuntary += int(line.split()[1])
    return voluntary, involuntary
