"""1,500 threads alive at a time, all of which wait for the lock; each gets it."""

import threading

import hazard

threading.stack_size(256 * 1024)
count = 1500
order = []
go = threading.Event()
barrier = threading.Semaphore(0)


def work(n):
    barrier.release()
    go.wait()
    for _ in range(3):
        sum(range(500))
    order.append(n)


threads = [threading.Thread(target=work, args=(n,)) for n in range(count)]
for thread in threads:
    thread.start()
for _ in threads:
    barrier.acquire()
go.set()
for thread in threads:
    thread.join()
assert sorted(order) == list(range(count)), len(order)
hazard.threads_work()
hazard.ok()
