"""A free-threaded build: with the lock off it makes none of the lock's calls and leaves no trace of
acquisitions; with PYTHON_GIL=1 it is served like any other."""

import sys

import hazard

hazard.threads_work()
with hazard.Spinners(3) as spinners:
    while min(spinners.counts) < 5000:
        pass
    hazard.reap(hazard.child_exits(hazard.threads_work))
assert sys._is_gil_enabled() == ("gil" in sys.argv)
hazard.ok()
