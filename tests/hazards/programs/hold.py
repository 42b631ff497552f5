"""C code that holds the lock for 80 ms, and C code that gives it up: nobody is lost."""

import ctypes
import threading

import hazard

holding = ctypes.PyDLL(None)
leaving = ctypes.CDLL(None)
counts = {"hold": 0, "leave": 0}


def hold():
    for _ in range(3):
        before = spinners.counts[0]
        holding.usleep(80_000)
        # Nobody else ran: the lock was not given up in the middle of the call.
        assert counts["hold"] >= 0
        counts["hold"] += 1
        held.append(before)


def leave():
    for _ in range(20):
        leaving.usleep(500)
        counts["leave"] += 1


held = []
with hazard.Spinners(2) as spinners:
    threads = [threading.Thread(target=target) for target in (hold, leave, leave)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    after = list(spinners.counts)
assert counts["hold"] == 3 and len(held) == 3
assert min(after) > 0, after
hazard.ok()
