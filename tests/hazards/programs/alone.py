"""A lock that is one thread's own for a while, then everybody's, again and again; the thread is
each time another one, computes alone or blocks alone, and some end while the lock is theirs.

`turn` says who is alone; the others wait for it outside of the interpreter's lock.
"""

import os
import threading

import hazard

ROUNDS = 30
THREADS = 4
# More acquisitions in a row than it takes.
ALONE = 400

null = os.open(os.devnull, os.O_WRONLY)
together = threading.Barrier(THREADS)
alone = [0] * THREADS
shared = [0] * THREADS


def be_alone(n, computes):
    for _ in range(ALONE):
        os.write(null, b"")
        alone[n] += 1
    if computes:
        for _ in range(100_000):
            pass


def work(n):
    for turn in range(ROUNDS):
        together.wait()
        if turn % THREADS == n:
            be_alone(n, computes=turn % 2)
        together.wait()
        for _ in range(ALONE):
            os.write(null, b"")
            shared[n] += 1


threads = [threading.Thread(target=work, args=(n,)) for n in range(THREADS)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert sum(alone) == ROUNDS * ALONE, alone
assert shared == [ROUNDS * ALONE] * THREADS, shared

# Each of these has the lock to itself, ends, and leaves its number to the next.
alone = [0] * ROUNDS
for n in range(ROUNDS):
    thread = threading.Thread(target=be_alone, args=(n, n % 2))
    thread.start()
    thread.join()
assert alone == [ALONE] * ROUNDS, alone
with hazard.Spinners(2) as spinners:
    be_alone(0, computes=True)
assert alone[0] == 2 * ALONE and min(spinners.counts) >= 0
hazard.ok()
