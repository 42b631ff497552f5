"""Threads that end while others wait; threads whose thread-specific destructors take the lock
after everything else of them is gone."""

import ctypes
import threading

import hazard

free, kept = hazard.helper()
count = [0]
CALLBACK = ctypes.CFUNCTYPE(None)


@CALLBACK
def called():
    count[0] += 1


with hazard.Spinners(2):
    assert free.run_tsd_threads(20, called) == 0
    assert count[0] == 20 * 2, count
    for _ in range(30):
        threads = [threading.Thread(target=lambda: None) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
hazard.ok()
