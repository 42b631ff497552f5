"""Whatever a program does, it does on the cores that it is allowed on: with the lock, in a blocking
call, in a child. And what it sets itself, for a thread that waits too, stays."""

import os
import subprocess
import sys
import threading

import hazard

ALLOWED = os.sched_getaffinity(0)
ONE = {min(ALLOWED)}
SHOW = "import os; print(sorted(os.sched_getaffinity(0)))"


def until(holds):
    """The program hangs, and its watchdog tells, when it never does."""
    while not holds():
        pass


class Worker(threading.Thread):
    """Looks at its own cores again and again, waiting for the lock in between; then blocks."""

    def __init__(self):
        super().__init__(daemon=True)
        self.seen = []
        self.blocks = False
        self.pipe = os.pipe()

    def run(self):
        while not self.blocks:
            self.look()
            for _ in range(2000):
                pass
        os.read(self.pipe[0], 1)
        self.look()

    def look(self):
        self.seen.append(os.sched_getaffinity(0))


workers = [Worker() for _ in range(4)]
with hazard.Spinners(2):
    for worker in workers:
        worker.start()
    until(lambda: min(len(worker.seen) for worker in workers) > 50)
    child = subprocess.run([sys.executable, "-c", SHOW], stdout=subprocess.PIPE, check=True)
    assert child.stdout.decode().strip() == str(sorted(ALLOWED)), child.stdout

    # This thread has the lock, so the worker waits for it, or is about to.
    first = workers[0]
    earlier = len(first.seen)
    os.sched_setaffinity(first.native_id, ONE)
    # One look may be under way.
    later = len(first.seen) + 1
    until(lambda: len(first.seen) > later + 20)

    for worker in workers:
        worker.blocks = True
    for worker in workers:
        expected = ONE if worker is first else ALLOWED
        until(lambda: os.sched_getaffinity(worker.native_id) == expected)  # noqa: B023
    for worker in workers:
        os.write(worker.pipe[1], b".")
        worker.join()
for worker in workers:
    seen = worker.seen
    before, after = (earlier, later) if worker is first else (len(seen), len(seen))
    assert all(cores == ALLOWED for cores in seen[:before]), seen
    assert all(cores == ONE for cores in seen[after:]), seen
hazard.ok()
