"""What the futures of the tests run."""

from __future__ import annotations

import os
import time
from typing import Any

from deconvoy import futures
from deconvoy.futures import future, touch, wait_for_future

# Not a measure of anything: a hang must not hang the tests.
HANGS_AFTER_S = 60


BACKENDS = ("thread", "fork")


def add(one: int, other: int = 1) -> int:
    return one + other


def fails() -> None:
    raise KeyError("that")


def loops() -> None:
    while True:
        time.sleep(0.0001)


def until(holds: Any) -> None:
    deadline = time.monotonic() + HANGS_AFTER_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def nested(depth: int) -> int:
    return 0 if depth == 0 else 1 + touch(future(nested, depth - 1))


def waits_for_nested(depth: int) -> int:
    if depth == 0:
        return 0
    inner = wait_for_future(future(waits_for_nested, depth - 1))
    return 1 + inner.result()


def present_kind() -> tuple[str, int]:
    return futures.environment().kind, futures.future_max_threads()


class Gate:
    """What a future waits at until it is opened; also across a fork."""

    def __init__(self) -> None:
        self.out, self.into = os.pipe()
        self.begun, self.begins = os.pipe()

    def passes(self, value: Any = None) -> Any:
        os.write(self.begins, b".")
        os.read(self.out, 1)
        return value

    def has_begun(self) -> None:
        os.read(self.begun, 1)

    def open(self, many: int = 1) -> None:
        os.write(self.into, b"." * many)

    def close(self) -> None:
        for end in (self.out, self.into, self.begun, self.begins):
            os.close(end)
