"""Threads that hand items to and fro through one lock: `convoy.py SCENARIO` prints how often they
gave up their processor to wait, and how many items went through, as JSON. It asserts that each came
through once; how many switches are too many is judged by the test.
"""

import json
import queue
import resource
import signal
import sys
import threading


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
    main = threading.main_thread().ident

    def heard(*_):
        state["heard"] += 1

    signal.signal(signal.SIGUSR1, heard)

    def work():
        while state["mine"] < 200 or state["heard"] < 20:
            for _ in range(100):
                with lock:
                    state["count"] += 1
            signal.pthread_kill(main, signal.SIGUSR1)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        with lock:
            state["mine"] += 1
    assert state["count"] % 100 == 0, state
    return state["count"] + state["mine"]


SCENARIOS = {
    "queue": lambda: bounded_queue(15, 9, 2000),
    "pair": lambda: bounded_queue(1, 1, 20_000),
    "pool": pool,
    "signals": signals,
}

if __name__ == "__main__":
    items = SCENARIOS[sys.argv[1]]()
    switches = resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw
    print(json.dumps({"items": items, "switches": switches}), flush=True)
    print("ok", flush=True)
