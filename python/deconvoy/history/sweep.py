"""`history run`: measures many revisions, each several times, in turn."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from deconvoy.history.builds import Source
from deconvoy.history.laboratory import Laboratory
from deconvoy.history.walk import Busy, Chain

# After so many rounds in a row for which it was not quiet, it is given up for now.
GIVES_UP_AFTER = 3

SEED = 1


@dataclass(frozen=True)
class Done:
    """How a sweep has ended. `missing`: rounds that are left, as the machine was too busy."""

    missing: int
    over_size: int


def every(chain: Chain, step: int) -> list[int]:
    """Every n-th position, and the last."""
    last = len(chain) - 1
    return [*range(0, last, step), last]


def evenly(chain: Chain, count: int) -> list[int]:
    """So many positions, evenly spaced, the first and the last among them."""
    last = len(chain) - 1
    count = min(count, len(chain))
    if count < 2:
        return [last]
    return sorted({round(number * last / (count - 1)) for number in range(count)})


def distinct(sources: Sequence[Source]) -> list[Source]:
    """One of each build."""
    return list({one.key: one for one in reversed(sources)}.values())[::-1]


def sweep(
    laboratory: Laboratory,
    sources: Sequence[Source],
    progress: Callable[[str, int, int], None],
) -> Done:
    """Builds all, then measures them in rounds, in each of which every build has its turn, in
    another order: a drift of the machine falls on all alike. What was built and measured before is
    not built and measured again.

    `progress` is told of what, how much is done, of how much.

    Raises UserError when nothing can be measured for a reason that the user can mend.
    """
    builds = distinct(sources)
    repeats = laboratory.project.benchmark.repeats
    laboratory.builder.want({one.key for one in builds})
    count = 0

    def built(_: Source) -> None:
        nonlocal count
        count += 1
        progress("builds", count, len(lacking))

    # What was removed to make room, and measured before, is not made again.
    lacking = [one for one in builds if len(laboratory.rounds.get(one.key, ())) < repeats]
    laboratory.build(lacking, built)
    over_size = laboratory.builder.make_room()
    able = [one for one in builds if one.key not in laboratory.failures]
    total = repeats * len(able)
    missing = busy = done = 0
    for number in range(repeats):
        in_order = list(able)
        random.Random(SEED + number).shuffle(in_order)
        for source in in_order:
            if source.key in laboratory.failures:
                done += 1
                continue
            if len(laboratory.rounds.get(source.key, ())) <= number:
                if busy >= GIVES_UP_AFTER:
                    missing += 1
                    continue
                try:
                    # Another process may have made room meanwhile.
                    if laboratory.ensure(source):
                        laboratory.measure(source)
                    busy = 0
                except Busy:
                    busy += 1
                    missing += 1
            done += 1
            progress("rounds", done, total)
    return Done(missing, over_size)


class Progress:
    """Says how far a sweep is where no bar can be drawn."""

    def __init__(self, say: Callable[[str], None], every_s: float) -> None:
        self._say = say
        self._every_s = every_s
        self._said_s = self._begun_s = time.monotonic()
        self._what = ""
        self._first = 0

    def __call__(self, what: str, done: int, total: int) -> None:
        now = time.monotonic()
        if what != self._what:
            self._what, self._begun_s, self._first = what, now, done
        if now - self._said_s < self._every_s or done >= total:
            return
        self._said_s = now
        rate = (done - self._first) / max(now - self._begun_s, 1e-3)
        left = f", about {(total - done) / rate / 60:.0f} min to go" if rate > 0 else ""
        self._say(f"{done} of {total} {what}{left}")
