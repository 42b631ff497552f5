"""Any workload that is given as data: groups of threads, and what each does over and over.

Runs on any CPython from 3.6 on. See README.md in this folder for the work, and the documentation
for how a workload is written.
"""

import argparse
import json
import math
import os
import random
import socket
import sys
import threading
import time
import traceback

# What a program's timer is late by at least, in seconds, as Linux has it.
SLACK = 50e-6

UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}


def seconds(text):
    number = text.rstrip("nums")
    return float(number) * UNITS[text[len(number):]]


def drawn(amount, chance):
    """Gives a length of time in seconds, anew at each call."""
    if isinstance(amount, str):
        always = seconds(amount)
        return lambda: always
    ((kind, of),) = amount.items()
    if kind == "exponential":
        mean = seconds(of)
        return lambda: chance.expovariate(1.0) * mean
    first = seconds(of[0])
    if kind == "uniform":
        last = seconds(of[1])
        return lambda: chance.uniform(first, last)
    if kind == "lognormal":
        return lambda: first * math.exp(chance.gauss(0.0, of[1]))
    return lambda: first * chance.paretovariate(of[1])


def count(rounds):
    for _ in range(rounds):
        pass


def rounds_per_s():
    """How fast a thread counts that has the interpreter to itself: the best of some trials."""
    best = 0.0
    for _ in range(20):
        begun = time.perf_counter()
        count(100000)
        best = max(best, 100000 / (time.perf_counter() - begun))
    return best


class Workload:
    def __init__(self, groups, seed):
        self.seed = seed
        self.rate = rounds_per_s()
        self.null = open("/dev/null", "wb", buffering=0)
        self.stop = False
        # All threads are there before any of them begins.
        self.go = threading.Event()
        names = {name for group in groups for step in group["loop"]
                 for kind, name in step.items() if kind in ("send", "receive")}
        self.channels = {name: socket.socketpair() for name in sorted(names)}

    def make(self, step, chance):
        """One step of a loop, made ready to be taken."""
        ((kind, amount),) = step.items()
        if kind == "send":
            return lambda: self.channels[amount][0].send(b"x")
        if kind == "receive":
            return lambda: self.channels[amount][1].recv(1)
        if amount == "forever":
            return self.compute_forever
        draw = drawn(amount, chance)
        if kind == "compute":
            return lambda: count(int(draw() * self.rate))
        if kind == "sleep":
            return lambda: time.sleep(draw() + SLACK)
        if kind == "block":
            return lambda: self.block(draw())
        raise ValueError("no step {!r} in Python".format(kind))

    def block(self, off):
        if off > 0:
            time.sleep(off)
        else:
            self.null.write(b"x")

    def compute_forever(self):
        while not self.stop:
            count(1000)

    def take_part(self, group, number, after, done):
        """One thread, the `number`th of all, which begins `after` so many seconds; an error in it is
        the end of the program."""
        try:
            set_exact_timers()
            self.go.wait()
            time.sleep(after)
            chance = random.Random(self.seed * 100003 + number)
            steps = [self.make(step, chance) for step in group["loop"]]
            left = group.get("times", math.inf)
            while left > 0 and not self.stop:
                for step in steps:
                    step()
                left -= 1
            done.release()
        except BaseException:
            traceback.print_exc()
            os._exit(1)


def set_exact_timers():
    """Those of the calling thread, if the kernel lets it say so."""
    me = os.readlink("/proc/thread-self").rpartition("/")[2]
    try:
        with open("/proc/{}/timerslack_ns".format(me), "w") as slack:
            slack.write("1")
    except OSError:
        pass


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mix", required=True, help="its name; it is on standard input, as JSON")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--switch-interval", type=float, help="seconds")
    args = parser.parse_args()
    if args.switch_interval is not None:
        sys.setswitchinterval(args.switch_interval)
    mix = json.load(sys.stdin)
    groups = mix["threads"]
    workload = Workload(groups, args.seed)
    done = threading.Semaphore(0)
    bounded = made = 0
    for group in groups:
        alone = group.get("count", 1) == 1
        for number in range(group.get("count", 1)):
            name = group["name"] if alone else "{}-{}".format(group["name"], number)
            bounded += "times" in group
            after = seconds(group.get("after", "0us")) * (number + 1)
            arguments = (group, made, after, done)
            part = threading.Thread(target=workload.take_part, name=name, args=arguments)
            part.daemon = True
            part.start()
            made += 1
    begun = time.perf_counter()
    end = begun + seconds(mix.get("duration", "10s"))
    workload.go.set()
    for _ in range(bounded):
        if not done.acquire(timeout=max(end - time.perf_counter(), 0)):
            break
    if not bounded:
        time.sleep(max(end - time.perf_counter(), 0))
    workload.stop = True
    print(json.dumps({"elapsed_s": time.perf_counter() - begun}), flush=True)
    # Threads that wait for a message that never comes are left behind.
    os._exit(0)


main()
