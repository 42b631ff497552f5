"""Eight threads count under one lock, and compute a little beside it: seconds."""

from __future__ import annotations

import threading
import time

THREADS, TIMES = 8, 40_000


def main() -> None:
    lock = threading.Lock()
    counted = 0

    def count() -> None:
        nonlocal counted
        for _ in range(TIMES):
            with lock:
                counted += 1
            sum(range(5))

    threads = [threading.Thread(target=count) for _ in range(THREADS)]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if counted != THREADS * TIMES:
        raise SystemExit(f"{counted} is not {THREADS * TIMES}")
    print(f"{time.perf_counter() - begun:.3f}")


if __name__ == "__main__":
    main()
