"""Counts down, in one thread or split over several, or over processes.

Source: slides 3 to 11 of Beazley's "In Search of the Perfect GIL". Runs on any CPython from 2.7 on.
See README.md in this folder.
"""
from __future__ import print_function

import argparse
import json
import os
import sys
import threading
import time

clock = getattr(time, "perf_counter", time.time)


def countdown(n):
    while n > 0:
        n -= 1


def fork_all(workers, part):
    for _ in range(workers):
        if os.fork() == 0:
            countdown(part)
            os._exit(0)
    for _ in range(workers):
        _, status = os.wait()
        assert status == 0, "a child failed"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mode", choices=["sequential", "thread", "fork"], default="sequential")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--work", type=int, default=100000000)
    parser.add_argument("--switch-interval", type=float, help="seconds")
    args = parser.parse_args()
    if args.switch_interval is not None:
        sys.setswitchinterval(args.switch_interval)

    begun = clock()
    if args.mode == "sequential":
        countdown(args.work)
    elif args.mode == "fork":
        fork_all(args.workers, args.work // args.workers)
    else:
        part = args.work // args.workers
        threads = [threading.Thread(target=countdown, args=(part,)) for _ in range(args.workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    print(json.dumps({"elapsed_s": clock() - begun}))


if __name__ == "__main__":
    main()
