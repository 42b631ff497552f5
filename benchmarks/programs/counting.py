"""CPU-bound threads inside a program, and what they have counted so far.

They add one to a counter without end and without input or output, as in scenarios/messaging.
The environment variable CPU_BOUND_THREADS says how many there are: it reaches a program through
gunicorn and uvicorn, too.
"""

from __future__ import annotations

import os
import threading
import time

_counts: list[int] = []


def _count_on(place: int) -> None:
    n = 0
    while True:
        n += 1
        _counts[place] = n


def start() -> None:
    """Starts the threads that the environment asks for."""
    for place in range(int(os.environ.get("CPU_BOUND_THREADS", "0"))):
        _counts.append(0)
        name = f"cpu-{place}"
        threading.Thread(target=_count_on, args=(place,), name=name, daemon=True).start()


def counted() -> dict[str, float]:
    """A clock in seconds, and what all threads have counted by then."""
    return {"at_s": time.perf_counter(), "count": sum(_counts)}
