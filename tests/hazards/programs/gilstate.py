"""PyGILState_Ensure from C threads that Python did not make, beside Python threads; `errno` is
kept by taking and giving up the lock."""

import ctypes
import threading

import hazard

free, kept = hazard.helper()
CALLBACK = ctypes.CFUNCTYPE(None)
count = [0]


@CALLBACK
def called():
    count[0] += 1


assert kept.errno_kept(200) == 0
assert free.run_gilstate_threads(8, 40, called) == 0
assert count[0] == 8 * 40, count
with hazard.Spinners(2) as spinners:
    assert free.run_gilstate_threads(4, 10, called) == 0
    assert kept.errno_kept(10) == 0
assert count[0] == 8 * 40 + 4 * 10, count
assert min(spinners.counts) > 0

# Each has the lock to itself for a while before another thread comes, and for a while at its end.
# The next one is put where it was, and nothing hangs though it could be taken for it.
ROUNDS = 700
count[0] = 0
seen = []


@CALLBACK
def met_once():
    count[0] += 1
    if count[0] % ROUNDS in (5, 350):
        other = threading.Thread(target=lambda: [seen.append(0) for _ in range(20_000)])
        other.start()
        other.join()


assert free.run_gilstate_threads_in_turn(6, ROUNDS, met_once) == 0
assert count[0] == 6 * ROUNDS, count
assert len(seen) == 6 * 2 * 20_000, len(seen)
hazard.ok()
