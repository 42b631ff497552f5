"""Requests from several threads: at a fixed rate, or as fast as they are answered.

A program that makes requests reads one JSON object a line from its standard input, and answers
each with one on its standard output:

    {"count": true}                        how far its CPU-bound threads are: `at_s`, `count`
    {"requests": 100}                      so many requests, as fast as they are answered
    {"seconds": 4.0}                       for so long
    {"seconds": 4.0, "per_second": 200.0}  one each 5 ms, whether or not the last are answered

A latency is counted from the moment a request is due, not from when a thread came to send it:
what waits in the program because all its threads wait, waits (no coordinated omission; Gil Tene,
"How NOT to Measure Latency"). It ends with its input, or at SIGTERM with status 0.
"""

from __future__ import annotations

import itertools
import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import counting

# Makes the request of that number; whether the answer was right.
Request = Callable[[int], bool]

# A phase that is behind gives up after so many times its length; what was due by then and never
# sent counts as having waited until then.
PATIENCE = 4


class Phase:
    """One phase: what its threads share, and what came of it."""

    def __init__(
        self, requests: int | None, seconds: float | None, per_second: float | None
    ) -> None:
        self.numbers = itertools.count()
        self.pause_ns = 1e9 / per_second if per_second else 0.0
        length_ns = seconds * 1e9 if seconds else float("inf")
        self.began_ns = time.perf_counter_ns()
        self.last_due_ns = self.began_ns + length_ns
        self.gives_up_ns = self.began_ns + PATIENCE * length_ns
        self.limit = float("inf") if requests is None else requests
        self.latency_ns: list[int] = []
        self.wrong = 0
        self.unsent = 0
        self.first_error: str | None = None

    def work(self, request: Request) -> None:
        """What each thread does: takes the next request, awaits its time, makes it."""
        # itertools.count takes a number in one step: no two threads get the same.
        for number in self.numbers:
            now = time.perf_counter_ns()
            due = self.began_ns + int(number * self.pause_ns) if self.pause_ns else now
            if number >= self.limit or due >= self.last_due_ns:
                return
            if due > now:
                time.sleep((due - now) / 1e9)
            if now > self.gives_up_ns:
                self.unsent += 1
            else:
                self.make(request, number)
            self.latency_ns.append(time.perf_counter_ns() - due)

    def make(self, request: Request, number: int) -> None:
        try:
            right = request(number)
        # Whatever the library raises, OSError or its own: an answer that did not come.
        except Exception as error:
            right = False
            self.first_error = self.first_error or repr(error)
        if not right:
            self.wrong += 1

    def result(self) -> dict[str, Any]:
        return {
            "elapsed_s": (time.perf_counter_ns() - self.began_ns) / 1e9,
            "latency_ns": self.latency_ns,
            "wrong": self.wrong,
            "unsent": self.unsent,
            "first_error": self.first_error,
        }


def run(requests: Sequence[Request], order: dict[str, Any]) -> dict[str, Any]:
    """One phase, with a thread for each of `requests`; what the line of its result says."""
    phase = Phase(order.get("requests"), order.get("seconds"), order.get("per_second"))
    threads = [
        threading.Thread(target=phase.work, args=(request,), name=f"client-{place}", daemon=True)
        for place, request in enumerate(requests)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return phase.result()


def serve(requests: Sequence[Request]) -> None:
    """Answers the lines of the standard input until it ends."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    counting.start()
    for line in iter(sys.stdin.readline, ""):
        order = json.loads(line)
        answer = counting.counted() if "count" in order else run(requests, order)
        print(json.dumps(answer), flush=True)
