"""Fork 200 times from the main thread while CPU-bound threads run; the children's threads work.

Where all is traced, a few times: each child makes a file, and under CPython's own policy each of
its turns costs switch intervals.
"""

import os

import hazard

COUNT = 40 if "DECONVOY_TRACE" in os.environ else 200

with hazard.Spinners(3) as spinners:
    for _n in range(COUNT):
        hazard.reap(hazard.child_exits(lambda: hazard.threads_work(2, 20)))
assert min(spinners.counts) > 0, spinners.counts
hazard.ok()
