"""A pool of eight threads does 20,000 tasks that are next to nothing: seconds."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

TASKS = 20_000


def main() -> None:
    begun = time.perf_counter()
    with ThreadPoolExecutor(8) as executor:
        futures = [executor.submit(int, "5") for _ in range(TASKS)]
        done = sum(future.result() for future in futures)
    if done != 5 * TASKS:
        raise SystemExit(f"{done} is not {5 * TASKS}")
    print(f"{time.perf_counter() - begun:.3f}")


if __name__ == "__main__":
    main()
