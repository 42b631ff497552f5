"""Fork 200 times from the main thread while CPU-bound threads run; the children's threads work."""

import hazard

with hazard.Spinners(3) as spinners:
    for _n in range(200):
        hazard.reap(hazard.child_exits(lambda: hazard.threads_work(2, 20)))
assert min(spinners.counts) > 0, spinners.counts
hazard.ok()
