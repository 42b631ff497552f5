"""PyGILState_Ensure from C threads that Python did not make, beside Python threads; `errno` is
kept by taking and giving up the lock."""

import ctypes

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
hazard.ok()
