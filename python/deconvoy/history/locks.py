"""Lock profiles of benchmarks: which locks they took, how often they waited, from where."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deconvoy import _native
from deconvoy.history.metric import NoNumber
from deconvoy.preload import counting_mutexes as environment

__all__ = ["Lock", "Profile", "environment", "profile", "totals"]


@dataclass
class Caller:
    """Functions that take a lock, innermost first, how often, and how often it was not free."""

    stack: tuple[str, ...]
    kind: str
    taken: int = 0
    contended: int = 0
    waited_ns: int = 0


@dataclass
class Lock:
    """A lock, by its name; those on the heap that the same functions take are one."""

    name: str
    callers: dict[tuple[str, ...], Caller] = field(default_factory=dict)

    @property
    def taken(self) -> int:
        return sum(one.taken for one in self.callers.values())

    @property
    def contended(self) -> int:
        return sum(one.contended for one in self.callers.values())

    @property
    def waited_ns(self) -> int:
        return sum(one.waited_ns for one in self.callers.values())

    def add(self, other: Lock) -> None:
        """What was done with another one that has the same name."""
        for told in other.callers.values():
            self.add_caller(told)

    def add_caller(self, told: Caller) -> None:
        place = (told.kind, *told.stack)
        caller = self.callers.setdefault(place, Caller(told.stack, told.kind))
        caller.taken += told.taken
        caller.contended += told.contended
        caller.waited_ns += told.waited_ns

    @property
    def most(self) -> Caller:
        """The callers that take it most."""
        return max(self.callers.values(), key=lambda one: one.taken)


@dataclass
class Profile:
    """Of all processes of a run. `uncounted`: acquisitions at places that had no room."""

    locks: list[Lock]
    uncounted: int = 0
    processes: int = 0

    @property
    def taken(self) -> int:
        return sum(one.taken for one in self.locks) + self.uncounted

    @property
    def contended(self) -> int:
        return sum(one.contended for one in self.locks)


def profile(folder: Path) -> Profile:
    """What the processes of a run left in a folder: none if the library was not loaded, as into a
    program that is statically linked. Raises ValueError when a file is damaged."""
    found: dict[str | tuple[str, ...], Lock] = {}
    whole = Profile([])
    for file in sorted(folder.glob("*.locks")):
        with file.open("rb") as opened:
            # Of a process that was ended before it began.
            if not any(opened.read(8)):
                continue
        told = json.loads(_native.lock_profile_json(str(file)))
        whole.processes += 1
        whole.uncounted += told["uncounted"]
        for lock in told["locks"]:
            for site in lock["sites"]:
                _add(found, lock["name"], site)
    whole.locks = sorted(found.values(), key=lambda one: (-one.contended, -one.taken, one.name))
    return whole


def _add(found: dict[str | tuple[str, ...], Lock], name: str, site: Mapping[str, Any]) -> None:
    told = Caller(**{**site, "stack": tuple(site["stack"])})
    lock = found.setdefault((name, *told.stack) if name.startswith("a lock") else name, Lock(name))
    lock.add_caller(told)


def totals(folder: Path) -> dict[str, float]:
    """How many locks were taken, and of these, how many were not free.

    Raises NoNumber when the library was not loaded.
    """
    whole = profile(folder)
    if not whole.processes:
        raise NoNumber(
            "no locks were counted: the preloaded library was not loaded, as into a program that "
            "is statically linked"
        )
    return {"locks": float(whole.taken), "contended": float(whole.contended)}
