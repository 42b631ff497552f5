"""What the futures of the tests run."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from deconvoy import futures
from deconvoy.futures import Environment, future, touch, wait_for_future

# Not a measure of anything: a hang must not hang the tests.
HANGS_AFTER_S = 60


BACKENDS = ("thread", "fork", "dask")

# Opens an environment.
Opens = Callable[..., AbstractContextManager[Environment]]


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
    """What a future waits at until it is opened; also in another process."""

    def __init__(self, folder: Path) -> None:
        self.opened, self.begun = folder / "opened", folder / "begun"
        folder.mkdir(exist_ok=True)
        for path in (self.opened, self.begun):
            os.mkfifo(path)
        # What is written stays as long as somebody has it open.
        self.ends = [os.open(path, os.O_RDWR) for path in (self.opened, self.begun)]

    def __getstate__(self) -> tuple[Path, Path]:
        return self.opened, self.begun

    def __setstate__(self, state: tuple[Path, Path]) -> None:
        self.opened, self.begun = state

    def passes(self, value: Any = None) -> Any:
        write(self.begun, 1)
        read(self.opened)
        return value

    def has_begun(self) -> None:
        read(self.begun)

    def open(self, many: int = 1) -> None:
        write(self.opened, many)

    def close(self) -> None:
        for end in self.ends:
            os.close(end)


def write(path: Path, many: int) -> None:
    end = os.open(path, os.O_RDWR)
    os.write(end, b"." * many)
    os.close(end)


def read(path: Path) -> None:
    end = os.open(path, os.O_RDWR)
    try:
        os.read(end, 1)
    finally:
        os.close(end)
