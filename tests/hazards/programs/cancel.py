"""pthread_cancel of a thread that waits for the lock (and has cancellation disabled while it uses
Python, without which no CPython survives) and of threads in waits of their own: cleanup handlers
run, nobody hangs."""

import hazard

free, kept = hazard.helper()
assert free.cancel_own_waits(20) == 0
with hazard.Spinners(2):
    assert free.cancel_own_waits(20) == 0
for _ in range(10):
    # The caller keeps the lock while a C thread asks for it and is cancelled.
    assert kept.cancel_lock_waiter_begin() == 0
    hazard.threads_work(2, 10)
    assert free.cancel_lock_waiter_end() == 0
with hazard.Spinners(2):
    hazard.threads_work()
hazard.ok()
