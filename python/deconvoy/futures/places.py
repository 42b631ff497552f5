"""Places to run, which children take for themselves: a pipe with as many bytes as may run.

Nobody in the parent has to look for who is next. What it costs: a child that is killed between its
taking a place and its saying so loses it, which is found by counting.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
import resource
import termios
import time

from deconvoy.futures.lookout import OFTEN_S

# Children that wait for a place to run, at most; who makes more waits until there are fewer.
MOST_WAITING = 256

# Places, at most: a pipe has room for 65,536 bytes, and some are given back twice.
MOST_PLACES = 1 << 15


class Places:
    """`limit` places (at most MOST_PLACES), as long as there is a pipe: from `open` to `drop`."""

    def __init__(self, limit: int) -> None:
        self.limit = min(limit, MOST_PLACES)
        self.pipe: tuple[int, int] | None = None
        # Another way to its end, by which this process takes what is there and never waits.
        self._taker = -1
        # Places that are to be taken away as soon as they are given back.
        self.excess = 0
        # A child was killed that may have had a place: so many were missing when that was looked
        # at.
        self.lost: int | None = None
        self._audited_s = 0.0

    def open(self) -> tuple[int, int]:
        if self.pipe is None:
            pipe = os.pipe()
            flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
            try:
                self._taker = os.open(f"/proc/self/fd/{pipe[0]}", flags)
            except OSError:
                for end in pipe:
                    os.close(end)
                raise
            self.pipe = pipe
            self.give(self.limit)
        return self.pipe

    def __del__(self) -> None:
        # Also in a forked child, which forgets the environment's of its parent.
        self.drop()

    def drop(self) -> None:
        """Nobody has a place, nor waits for one."""
        if self.pipe is not None:
            for end in (*self.pipe, self._taker):
                os.close(end)
            self.pipe, self.excess, self.lost = None, 0, None

    def change(self, limit: int) -> None:
        limit = min(limit, MOST_PLACES)
        if self.pipe is not None:
            if limit > self.limit:
                self.give(limit - self.limit)
            else:
                self.excess += self.limit - limit
                self.take_excess()
        self.limit = limit

    def give(self, count: int) -> None:
        taken_back = min(count, self.excess)
        self.excess -= taken_back
        if self.pipe is not None and count > taken_back:
            os.write(self.pipe[1], b"." * (count - taken_back))

    def take(self) -> bool:
        """Takes a place, if one is free."""
        if self.pipe is None:
            return False
        with contextlib.suppress(BlockingIOError):
            return bool(os.read(self._taker, 1))
        return False

    def take_excess(self) -> None:
        """Takes away what places are free and not wanted any more."""
        while self.excess and self.take():
            self.excess -= 1

    def missing(self, taken: int) -> int:
        """How many neither those have that have said so, `taken` of them, nor anybody can take."""
        if self.pipe is None:
            return 0
        free = array.array("i", [0])
        fcntl.ioctl(self.pipe[0], termios.FIONREAD, free)
        return self.limit + self.excess - free[0] - taken

    def audit(self, taken: int) -> None:
        """Makes good for a place whose child ended before it could say that it had it, and for one
        that was given back twice: what is found twice in a row."""
        now_s = time.monotonic()
        if now_s < self._audited_s + OFTEN_S:
            return
        self._audited_s = now_s
        missing = self.missing(taken)
        if not missing:
            self.lost = None
        elif missing == self.lost:
            self.make_good(missing)
        else:
            self.lost = missing

    def make_good(self, missing: int) -> None:
        """What was made good is looked at again: it may have come in another way, too."""
        if missing > 0:
            self.give(missing)
        elif missing < 0:
            self.excess -= missing
            self.take_excess()
        self.lost = 0


def most_waiting(limit: int) -> int:
    """Children that wait for a place, at most, beside those that have one: each has three
    descriptors here."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(min(MOST_WAITING, (soft // 2) // 3 - limit), 0)
