"""Threads put items into one bounded queue, others take them out: seconds.

python3 benchmarks/programs/bounded_queue.py [PRODUCERS CONSUMERS]
deconvoy run -- python3 benchmarks/programs/bounded_queue.py
"""

from __future__ import annotations

import queue
import sys
import threading
import time

ITEMS, PLACES = 30_000, 1000


def main() -> None:
    producers_number, consumers_number = map(int, sys.argv[1:3] or (15, 9))
    items: queue.Queue[str | None] = queue.Queue(PLACES)

    def produce() -> None:
        for number in range(ITEMS // producers_number):
            items.put(str(number))

    def consume() -> None:
        while items.get() is not None:
            pass

    producers = [threading.Thread(target=produce) for _ in range(producers_number)]
    consumers = [threading.Thread(target=consume) for _ in range(consumers_number)]
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
