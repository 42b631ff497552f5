"""Threads that hand items to and fro through one lock: `convoy.py SCENARIO` prints how often they
gave up their processor to wait, and how many items went through, as JSON. It asserts that each came
through once; how many switches are too many is judged by the test.
"""

import json
import os
import queue
import resource
import signal
import sys
import threading

import hazard


def bounded_queue(producers, consumers, items):
    """Each `put` and `get` takes the queue's lock, and wakes who waits for it."""
    handed = queue.Queue(1000)
    got = [0] * consumers

    def produce():
        for number in range(items):
            handed.put(number + 1)

    def consume(n):
        while True:
            item = handed.get()
            if item is None:
                return
            got[n] += item

    threads = [threading.Thread(target=produce) for _ in range(producers)]
    takers = [threading.Thread(target=consume, args=(n,)) for n in range(consumers)]
    for thread in threads + takers:
        thread.start()
    for thread in threads:
        thread.join()
    for _ in takers:
        handed.put(None)
    for thread in takers:
        thread.join()
    assert sum(got) == producers * items * (items + 1) // 2
    return producers * items


def pool():
    """One that makes tasks, and eight that do them."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(8) as executor:
        futures = [executor.submit(int, str(number)) for number in range(20_000)]
        assert sum(future.result() for future in futures) == 19_999 * 10_000
    return 20_000


def signals():
    """The main thread is interrupted while it waits for a lock that others take all the time."""
    lock = threading.Lock()
    state = {"count": 0, "heard": 0, "mine": 0}
    rounds = [0] * 6
    main = threading.main_thread().ident

    def heard(*_):
        state["heard"] += 1

    signal.signal(signal.SIGUSR1, heard)

    def work(n):
        while state["mine"] < 200 or state["heard"] < 20:
            for _ in range(100):
                with lock:
                    state["count"] += 1
            rounds[n] += 1
            signal.pthread_kill(main, signal.SIGUSR1)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(len(rounds))]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        with lock:
            state["mine"] += 1
    assert state["count"] == 100 * sum(rounds), (state, rounds)
    return state["count"] + state["mine"]


def counted_in_child():
    lock = threading.Lock()
    number = 0

    def count():
        nonlocal number
        for _ in range(500):
            with lock:
                number += 1

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return number


def several():
    """More locks that are taken all the time than are looked at when a hold ends, some with a time
    limit, and children that are forked meanwhile."""
    locks = [threading.Lock() for _ in range(5)]
    counts = [0] * 5
    done = [0] * 10
    forked = threading.Event()

    def work(n):
        while done[n] < 3000 or not forked.is_set():
            which = (n + done[n] // 50) % 5
            if n % 3 == 0:
                while not locks[which].acquire(timeout=0.001):
                    pass
            else:
                locks[which].acquire()
            counts[which] += 1
            locks[which].release()
            done[n] += 1

    threads = [threading.Thread(target=work, args=(n,)) for n in range(10)]
    for thread in threads:
        thread.start()
    for _ in range(10):
        pid = os.fork()
        if pid == 0:
            hazard.watch_child()
            os._exit(0 if counted_in_child() == 2000 else 1)
        assert os.waitpid(pid, 0)[1] == 0
    forked.set()
    for thread in threads:
        thread.join()
    assert sum(counts) == sum(done), (counts, done)
    return sum(done)


SCENARIOS = {
    "queue": lambda: bounded_queue(15, 9, 2000),
    "pair": lambda: bounded_queue(1, 1, 20_000),
    "pool": pool,
    "signals": signals,
    "several": several,
}

if __name__ == "__main__":
    items = SCENARIOS[sys.argv[1]]()
    switches = resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw
    print(json.dumps({"items": items, "switches": switches}), flush=True)
    print("ok", flush=True)
