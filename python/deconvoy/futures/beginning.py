"""How a child of a fork future is made: whole, or not at all."""

from __future__ import annotations

import operator
import os
import signal
import threading
from collections.abc import Callable
from contextvars import Context
from typing import Any

from deconvoy.futures import child as children
from deconvoy.futures.answers import Child
from deconvoy.futures.future import future
from deconvoy.futures.places import Places


def begin(
    one: future[Any],
    body: Callable[[], Any],
    context: Context,
    places: Places,
    adopt: Callable[[Child], None],
    is_adopted: Callable[[int], bool],
) -> None:
    """Forks a child, which calls `body` in that context as soon as it has a place, and has it
    adopted. `is_adopted`: whether that was done, of the descriptor that it answers by.

    Raises OSError if none can be made, and what a signal's handler raises.
    """
    ends: list[int] = []
    pids: list[int] = []
    has_place = False
    # Other children do not get the end that this one answers over.
    children.making_lock.acquire()
    try:
        pipe = places.open()
        # Whoever comes first has a place first.
        has_place, parent = places.take(), os.getpid()
        ends += os.pipe()
        children.making[threading.get_ident()] = ends[1]
        ends += [os.memfd_create(name) for name in ("deconvoy-answer", "deconvoy-output")]
        # Noted in one step: a signal's handler may raise between any two.
        pids += map(operator.call, (os.fork,))
        its = children.Ends(*ends[1:])
        if pids == [0]:
            children.run(body, context, its, children.Turn(*pipe, has_place), parent)
        made = Child(one, pids[0], ends[0], its.large, its.output)
        made.has_started = has_place
        os.set_blocking(ends[0], False)
        adopt(made)
        # In this order: its number may be given to another one as soon as it is closed.
        children.making.clear()
        os.close(ends.pop(1))
    except BaseException:
        if pids == [0]:
            # The child goes no further, whatever its signals' handlers raise.
            os._exit(1)
        children.making.clear()
        if not (ends and is_adopted(ends[0])):
            undo(ends, pids)
            # Also if it is not known that one was taken, which `audit` finds.
            places.give(int(has_place))
            places.lost = 0
        raise
    finally:
        children.making.clear()
        children.making_lock.release()


def undo(ends: list[int], pids: list[int]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    for end in ends:
        os.close(end)
