"""20,000 threads, some at a time, one after the other, beside a CPU-bound one: more than there are
records for."""

import _thread
import threading

import hazard

count = 20_000
batch = 20
done = []
empty = threading.Semaphore(0)


def work(n):
    done.append(n)
    if n % batch == batch - 1:
        empty.release()


spinners = hazard.Spinners(1)
for first in range(0, count, batch):
    # The spinner runs for a part only: on a stock interpreter each batch costs an interval.
    if first == 1000:
        spinners.__exit__()
    for n in range(first, first + batch):
        while True:
            try:
                _thread.start_new_thread(work, (n,))
                break
            except RuntimeError:
                empty.acquire(timeout=0.01)
    empty.acquire()
while len(done) < count:
    empty.acquire(timeout=0.01)
assert sorted(done) == list(range(count))
hazard.threads_work()
hazard.ok()
