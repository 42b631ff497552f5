"""Fifteen threads put items into one bounded queue, nine take them out: seconds.

python3 benchmarks/programs/bounded_queue.py
deconvoy run -- python3 benchmarks/programs/bounded_queue.py
"""

from __future__ import annotations

import queue
import threading
import time

PRODUCERS, CONSUMERS, ITEMS, PLACES = 15, 9, 2000, 1000


def main() -> None:
    items: queue.Queue[str | None] = queue.Queue(PLACES)

    def produce() -> None:
        for number in range(ITEMS):
            items.put(str(number))

    def consume() -> None:
        while items.get() is not None:
            pass

    producers = [threading.Thread(target=produce) for _ in range(PRODUCERS)]
    consumers = [threading.Thread(target=consume) for _ in range(CONSUMERS)]
    begun = time.perf_counter()
    for thread in producers + consumers:
        thread.start()
    for thread in producers:
        thread.join()
    for _ in consumers:
        items.put(None)
    for thread in consumers:
        thread.join()
    print(f"{time.perf_counter() - begun:.3f}")


if __name__ == "__main__":
    main()
