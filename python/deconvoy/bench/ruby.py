"""How long a slice of Ruby's lock (GVL) is, and by what a program can have shorter ones.

It is the rival of our policies, as `sys.setswitchinterval` is in CPython. Before 3.3 a slice is at
least 100 ms, whatever a thread's priority. In 3.3 it is a number of ticks of 10 ms, and each level
of `Thread#priority=` below 0 halves it, down to -3. From 3.4 on `RUBY_THREAD_TIMESLICE` says how
many milliseconds it has.

Source: Ruby's `thread.c` (`rb_threadptr_execute_interrupts`), 2.7, 3.1, 3.3 and 3.4.
"""

from __future__ import annotations

from deconvoy.errors import UserError
from deconvoy.output import time_text

SLICE_S = 0.1

LOWEST_PRIORITY = -3

# The curve of what can be had; None is the default.
HALVED_S = tuple(SLICE_S / 2**level for level in range(1, -LOWEST_PRIORITY + 1))
SET_S = (0.05, 0.02, 0.01)

SETTING = "RUBY_THREAD_TIMESLICE"


def slices_s(version: str) -> tuple[float | None, ...]:
    """The lengths of slices that a version can have."""
    if _numbers(version) >= (3, 4):
        return (None, *SET_S)
    return (None, *HALVED_S) if _numbers(version) >= (3, 3) else (None,)


def how_to_have(slice_s: float | None, version: str) -> tuple[list[str], dict[str, str]]:
    """Arguments of our programs, and environment variables, for slices of so many seconds.

    Raises UserError where a version has no such slices.
    """
    if slice_s is None:
        return [], {}
    if _numbers(version) >= (3, 4):
        return [], {SETTING: str(max(1, round(slice_s * 1e3)))}
    can_be = [SLICE_S, *(HALVED_S if _numbers(version) >= (3, 3) else ())]
    if slice_s not in can_be:
        have = ", ".join(time_text(length * 1e9) for length in can_be)
        raise UserError(f"a slice of Ruby {version} is {have} long: --switch-interval 0.1")
    return ["--priority", str(-can_be.index(slice_s))], {}


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])
