"""Extremes of the switch interval. One that is longer than the program runs means that no switch
is ever forced: the order of two computing threads shows it."""

import _thread
import os
import sys
import threading
import time

import hazard

for interval in (1.0, 1e-6, 1e-9, 1e-4, 0.005):
    sys.setswitchinterval(interval)
    with hazard.Spinners(1 if interval == 1.0 else 3) as spinners:
        while min(spinners.counts) < 1000:
            time.sleep(0)
    hazard.threads_work(2, 10)
    pid = os.fork()
    if pid == 0:
        hazard.watch_child()
        with hazard.Spinners(1) as spinners:
            while min(spinners.counts) < 1000:
                time.sleep(0)
        files = hazard.trace_files(os.getpid())
        os._exit(0 if files is None or len(files) == 1 else 71)
    _, status = os.waitpid(pid, 0)
    assert status == 0, "interval %g: %#x: 71 is no trace of the child" % (interval, status)

for interval in (1000, 1e6):
    sys.setswitchinterval(interval)
    order = []

    def compute(order=order):
        # `Thread.start` would wait for the new thread to run; this does not.
        _thread.start_new_thread(lambda order=order: order.append("other"), ())
        # Bytecode for longer than a lost wake-up takes to be noticed; no call in here gives up
        # the lock.
        end = time.perf_counter() + 1.5
        while time.perf_counter() < end:
            pass
        order.append("computed")

    thread = threading.Thread(target=compute)
    thread.start()
    thread.join()
    while len(order) < 2:
        time.sleep(0.001)
    assert order == ["computed", "other"], (interval, order)
hazard.ok()
