"""Where threads wait for what children have to say.

Several may wait at a time, and one takes in what another one waits for. The first of them waits
for as long as it likes, and is woken then; the others look every now and then.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

# So often others than the first look, in seconds; and all, while a place to run may be missing.
OFTEN_S = 0.02


class Lookout:
    """Descriptors, and who waits for one of them to be readable."""

    def __init__(self, lock: threading.RLock) -> None:
        self._lock = lock
        self._poll: select.epoll | None = None
        # An event, readable when the first is to look again.
        self._wake = -1
        self._looking = 0
        self._has_first = False
        self._is_closing = False

    def add(self, descriptor: int) -> None:
        """With the lock held; as all that follows but `wait`."""
        if self._poll is None:
            self._poll, self._wake = select.epoll(), os.eventfd(0, os.EFD_NONBLOCK)
            self._poll.register(self._wake, select.EPOLLIN)
        self._poll.register(descriptor, select.EPOLLIN)
        self._is_closing = False

    def remove(self, descriptor: int) -> None:
        """Before it is closed: it may be open in other processes, too."""
        if self._poll is not None:
            self._poll.unregister(descriptor)

    def wake(self, mine: int) -> None:
        """What somebody waits for was taken in, or has ended. `mine`: 1 if the calling thread is
        one of those that look."""
        if self._looking > mine and self._wake >= 0:
            os.eventfd_write(self._wake, 1)

    def close(self) -> None:
        """As soon as nobody looks."""
        self._is_closing = True
        self._close()

    def __del__(self) -> None:
        # Also in a forked child, which forgets its parent's.
        if self._poll is not None:
            self._poll.close()
            os.close(self._wake)

    def _close(self) -> None:
        if self._poll is not None and self._is_closing and not self._looking:
            self._poll.close()
            os.close(self._wake)
            self._poll, self._wake, self._is_closing = None, -1, False

    @contextmanager
    def looks(self) -> Iterator[bool]:
        """The calling thread looks; whether it is the first of those that do. When that one leaves,
        it is another one the next time that it looks."""
        with self._lock:
            self._looking += 1
            is_first, self._has_first = not self._has_first, True
        try:
            yield is_first
        finally:
            with self._lock:
                self._looking -= 1
                if is_first:
                    self._has_first = False
                self._close()

    def wait(self, timeout_s: float | None, only: int | None, is_first: bool) -> list[int]:
        """Those that are readable, at the latest after so many seconds (None: as long as it takes);
        perhaps none, before it. `only`: nothing but this one."""
        if not is_first:
            timeout_s = OFTEN_S if timeout_s is None else min(timeout_s, OFTEN_S)
        if timeout_s is not None:
            timeout_s = max(timeout_s, 0)
        if only is not None:
            poll = select.poll()
            poll.register(only, select.POLLIN)
            if is_first:
                poll.register(self._wake, select.POLLIN)
            ready = poll.poll(None if timeout_s is None else timeout_s * 1000)
        elif self._poll is not None:
            ready = self._poll.poll(timeout_s)
        else:
            return []
        found = [descriptor for descriptor, _ in ready]
        if is_first and self._wake in found:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self._wake)
        elif found == [self._wake]:
            # It is for the first.
            time.sleep(0.001)
        return found
