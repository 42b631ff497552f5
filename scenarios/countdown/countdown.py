"""Counts down, in one thread or split over several.

Source: slides 3 to 11 of Beazley's "In Search of the Perfect GIL". Runs on any CPython from 2.7 on.
See README.md in this folder.
"""
from __future__ import print_function

import argparse
import json
import sys
import threading
import time

clock = getattr(time, "perf_counter", time.time)


def countdown(n):
    while n > 0:
        n -= 1


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mode", choices=["sequential", "thread"], default="sequential")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--work", type=int, default=100000000)
    parser.add_argument("--switch-interval", type=float, help="seconds")
    args = parser.parse_args()
    if args.switch_interval is not None:
        sys.setswitchinterval(args.switch_interval)

    begun = clock()
    if args.mode == "sequential":
        countdown(args.work)
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
