"""Runs tasks of a stated length one after the other, then in a mode: which gain is there at which
length? See README.md in this folder.
"""
import hashlib
import os
import sys
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import tasks

DATA = bytes(4096)
FEW = 20
LONG_S = 0.3


def count(times):
    """Work of Python's: with the GIL, where there is one."""
    while times > 0:
        times -= 1


def digest(times):
    """Work in C, which lets go of the GIL."""
    state = hashlib.sha256()
    for _ in range(times):
        state.update(DATA)


def times_for(work, seconds):
    """How many times take so long: found by the shortest of several trials."""
    times = 1
    while True:
        took = min(timed(work, times) for _ in range(5))
        if took > min(seconds, 0.001):
            return max(round(times * seconds / took), 1)
        times *= 2


def timed(work, times):
    begun = time.perf_counter()
    work(times)
    return time.perf_counter() - begun


def calls_for(args, work, times):
    """How many tasks take so long in the mode, by what a few take."""
    mode = tasks.Mode(args.mode, args.workers)
    begun = time.perf_counter()
    mode.map(work, [(times,)] * FEW)
    took = (time.perf_counter() - begun) / FEW
    mode.close.close()
    return max(int(LONG_S / took), FEW)


def main():
    args = tasks.parse(
        0,
        "tasks; 0: as many as take 0.3 s in the mode, 20 at least",
        size=(1000, "of a task, in microseconds"),
        digest=(0, "1: in C, without the GIL"),
    )
    work = digest if args.digest else count
    times = times_for(work, args.size / 1e6)
    calls = args.work or calls_for(args, work, times)
    begun = time.perf_counter()
    for _ in range(calls):
        work(times)
    sequential_s = time.perf_counter() - begun
    more = {"sequential_s": sequential_s, "task_s": sequential_s / calls}
    tasks.measure(args, calls, lambda map: len(map(work, [(times,)] * calls)), more)


if __name__ == "__main__":
    main()
