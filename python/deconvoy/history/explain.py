"""Why a revision changed the metric: it and the one before, run under the system's accounting, a
count of system calls, and a profile of their locks."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from deconvoy.bench.stats import Estimate, estimate
from deconvoy.errors import UserError
from deconvoy.history import locks
from deconvoy.history.builds import Source
from deconvoy.history.repository import Revision
from deconvoy.history.runs import Told, one_run, system_calls, traced
from deconvoy.history.session import Session
from deconvoy.history.store import Failure
from deconvoy.output import counted

# Runs of each, with each number of threads, in turn.
ROUNDS = 5

# So many builds at most to find one before a revision that can be built.
FURTHEST = 25

# What is said of: a count that is so many times another, a lock that has so much of all.
TIMES = 2.0
SHARE = 0.1

# Acquisitions of which it is not known where: so many of all are worth a word.
UNCOUNTED = 0.01

# Less system time (of what a run takes), and fewer switches, are nothing to speak of.
LEAST_SYSTEM, LEAST_SYSTEM_S = 0.05, 0.005
LEAST_SWITCHES = 100

# Processor time that grows so many times more with threads in one of the two.
HINDERED = 1.3

# Functions of the C library's.
LIBC = ("libc.so", "libpthread", "__libc_start", "start_thread", "__clone", "_start")

SHOWN = ("elapsed_s", "user_s", "system_s", "voluntary_switches", "involuntary_switches")


@dataclass
class Side:
    """A revision, as it was run: by number of threads, what the kernel accounted to it, how many
    system calls it made (nothing without strace), which locks it took. `disturbed`: runs beside
    which other programs used the machine."""

    source: Source
    accounted: dict[int, dict[str, Estimate]] = field(default_factory=dict)
    calls: dict[int, dict[str, float]] = field(default_factory=dict)
    profiles: dict[int, locks.Profile] = field(default_factory=dict)
    disturbed: int = 0

    @property
    def name(self) -> str:
        return self.source.revision.short


@dataclass(frozen=True)
class Explanation:
    before: Side
    after: Side
    threads: tuple[int, ...]
    found: list[str]


def explain(session: Session, revision: Revision, progress: Callable[[str], None]) -> Explanation:
    """Runs a revision and the nearest before it that can be run.

    Raises UserError when one of them cannot be built or run.
    """
    after = built(session, revision)
    if isinstance(after, Failure):
        raise UserError(f"{revision.short} cannot be measured: {after}")
    first = first_of_its_build(session, revision)
    if first.id != revision.id:
        raise UserError(
            f"{revision.short} is built from the same as {first.short}, so it changed nothing: "
            f"deconvoy history explain {first.short}"
        )
    before = nearest_before(session, revision, progress)
    sides = Side(before), Side(after)
    threads = session.project.benchmark.threads
    for count in threads:
        progress(f"runs {sides[0].name} and {sides[1].name} with {counted(count, 'thread')}")
        account(session, sides, count)
        for side in sides:
            look_closer(session, side, count)
    return Explanation(*sides, threads, findings(*sides, threads))


def built(session: Session, revision: Revision) -> Source | Failure:
    source = Source(revision, session.keys([revision])[0])
    if session.laboratory.ensure(source):
        return source
    return session.laboratory.failures[source.key]


def first_of_its_build(session: Session, revision: Revision) -> Revision:
    """The oldest of those that follow one another up to a revision and are built from the same."""
    own = session.keys([revision])[0]
    while revision.parents:
        before = session.repository.revision(revision.parents[0])
        if session.keys([before])[0] != own:
            break
        revision = before
    return revision


def nearest_before(session: Session, revision: Revision, progress: Callable[[str], None]) -> Source:
    """The nearest of those that it follows that can be built, and is built from something else."""
    at, own = revision, session.keys([revision])[0]
    made = session.laboratory.builder.made
    # What is known to fail costs nothing.
    while at.parents and session.laboratory.builder.made - made < FURTHEST:
        at = session.repository.revision(at.parents[0])
        found = built(session, at)
        if isinstance(found, Failure):
            progress(f"{at.short} cannot be built: looks further back")
        elif found.key != own:
            return found
    raise UserError(f"no revision before {revision.short} can be built, or none is built otherwise")


def account(session: Session, sides: tuple[Side, Side], threads: int) -> None:
    """What the kernel accounts to each, in turn."""
    told: list[dict[str, list[float]]] = [{name: [] for name in SHOWN} for _ in sides]
    limit_s = session.project.benchmark.limit_s
    for number in range(ROUNDS):
        in_turn = (0, 1) if number % 2 == 0 else (1, 0)
        for place in in_turn:
            side = sides[place]
            run = partial(one_run, *session.laboratory.to_run(side.source, threads), limit_s)
            told_of_it, is_quiet = session.laboratory.quietly(run)
            done = checked(side, told_of_it)
            side.disturbed += not is_quiet
            for name in SHOWN:
                told[place][name].append(done[name])
    for side, values in zip(sides, told, strict=True):
        side.accounted[threads] = {name: estimate(several) for name, several in values.items()}


def checked(side: Side, done: Told) -> dict[str, float]:
    """Raises UserError when it has failed."""
    if done.failure is not None:
        raise UserError(f"{side.name} cannot be run: {done.failure}")
    return done.counted


def look_closer(session: Session, side: Side, threads: int) -> None:
    """Its system calls and its locks, each in a run of its own."""
    command, folder, environment = session.laboratory.to_run(side.source, threads)
    limit_s = session.project.benchmark.limit_s
    with tempfile.TemporaryDirectory() as own:
        if shutil.which("strace") is not None:
            calls = Path(own, "calls")
            done = one_run(traced(command, calls), folder, environment, limit_s)
            # Where it may trace nobody, they are not counted.
            if done.failure is None:
                side.calls[threads] = system_calls(calls.read_text())
        profiled = locks.environment(Path(own), environment)
        checked(side, one_run(command, folder, profiled, limit_s))
        side.profiles[threads] = locks.profile(Path(own))


def findings(before: Side, after: Side, threads: tuple[int, ...]) -> list[str]:
    """What differs, in sentences."""
    few, many = min(threads), max(threads)
    found = []
    for side in (before, after):
        if few != many:
            found += grows(side, few, many)
    of_locks = lock_findings(before, after, few, many)
    found += of_locks
    if not of_locks:
        found += futex_findings(before, after, many)
    if few != many:
        found += hindrance(before, after, few, many)
    if not found:
        found.append(nothing_told(before, after, threads))
    if disturbed := before.disturbed + after.disturbed:
        found.append(
            f"note: other programs used the machine beside {counted(disturbed, 'run')}: times may "
            f"be theirs; again when it is quiet"
        )
    for side in (before, after):
        lost = side.profiles[many].uncounted
        if lost > UNCOUNTED * side.profiles[many].taken:
            found.append(f"{side.name}: {lost:,} acquisitions are of places that had no room")
    if not any(side.profiles[many].processes for side in (before, after)):
        found.append(
            "no locks were counted: the library was not loaded (a program that is statically "
            "linked, or that starts no program of its own)"
        )
    return found


def grows(side: Side, few: int, many: int) -> list[str]:
    """What of the kernel's grows with threads, for the same work."""
    found = []
    low, high = (side.accounted[count]["system_s"].median for count in (few, many))
    least = max(LEAST_SYSTEM * side.accounted[many]["elapsed_s"].median, LEAST_SYSTEM_S)
    if high > least and high > TIMES * low:
        found.append(
            f"{side.name}: system time grows with threads: {low:.3f} s with {few}, {high:.3f} s "
            f"with {many}: threads wait for one another"
        )
    low, high = (side.accounted[count]["voluntary_switches"].median for count in (few, many))
    if high > LEAST_SWITCHES and high > TIMES * max(low, 1.0):
        found.append(
            f"{side.name}: voluntary switches grow with threads: {low:,.0f} with {few}, "
            f"{high:,.0f} with {many}"
        )
    return found


def futex_findings(before: Side, after: Side, many: int) -> list[str]:
    """Waiting that no pthread lock tells of."""
    calls = [side.calls.get(many, {}).get("futex", 0.0) for side in (before, after)]
    if max(calls) < LEAST_SWITCHES or max(calls) < TIMES * max(min(calls), 1.0):
        return []
    return [
        f"futex calls with {counted(many, 'thread')}: {calls[0]:,.0f} in {before.name}, "
        f"{calls[1]:,.0f} in {after.name}: threads wait for one another, and for no pthread lock "
        f"(a semaphore, a futex of the program's own, a lock of an interpreter's)"
    ]


def hindrance(before: Side, after: Side, few: int, many: int) -> list[str]:
    """Processor time for the same work that grows with threads in one of the two only."""
    ratios = []
    for side in (before, after):
        low, high = (side.accounted[count]["user_s"].median for count in (few, many))
        ratios.append(high / low if low > LEAST_SYSTEM_S else 1.0)
    if max(ratios) < HINDERED * min(ratios):
        return []
    worse = before if ratios[0] > ratios[1] else after
    low, high = (worse.accounted[count]["user_s"].median for count in (few, many))
    return [
        f"{worse.name}: user time grows with threads: {low:.3f} s with {few}, {high:.3f} s with "
        f"{many}: threads hinder one another in the processor (one cache line, memory), or wait "
        f"awake"
    ]


def nothing_told(before: Side, after: Side, threads: tuple[int, ...]) -> str:
    """When no finding tells of a difference: there is none, or it is in the work itself."""
    apart = any(
        one.high < other.low or other.high < one.low
        for one, other in (
            (before.accounted[count]["elapsed_s"], after.accounted[count]["elapsed_s"])
            for count in threads
        )
    )
    if apart:
        return "neither system time nor locks tell: the change is in what the threads compute"
    return f"{before.name} and {after.name} do not differ in anything that is measured here"


def by_name(profile: locks.Profile) -> dict[str, locks.Lock]:
    """Locks as both sides call them: those on the heap by who takes them."""
    found: dict[str, locks.Lock] = {}
    for lock in profile.locks:
        name = lock.name if not lock.name.startswith("a lock") else told_by_caller(lock)
        found.setdefault(name, locks.Lock(lock.name)).add(lock)
    return found


def told_by_caller(lock: locks.Lock) -> str:
    return f"{lock.name}, taken by {' < '.join(lock.most.stack[:2])}"


def lock_findings(before: Side, after: Side, few: int, many: int) -> list[str]:
    """Of the locks that one side takes much more often, or waits for: how often, from where."""
    one, other = by_name(before.profiles[many]), by_name(after.profiles[many])
    most = max((lock.taken for lock in (*one.values(), *other.values())), default=0)
    found = []
    for name in dict.fromkeys([*one, *other]):
        old, new = one.get(name), other.get(name)
        counts = [lock.taken if lock else 0 for lock in (old, new)]
        waits = [lock.contended if lock else 0 for lock in (old, new)]
        if max(counts) < max(SHARE * most, 1):
            continue
        busier = old if counts[0] >= counts[1] else new
        assert busier is not None
        if max(counts) > TIMES * max(min(counts), 1):
            sides = before.profiles if busier is old else after.profiles
            found.append(told_of(name, busier, (before, after), counts, waits, sides[few], few))
        elif max(waits) > LEAST_SWITCHES and max(waits) > TIMES * max(min(waits), 1):
            found.append(
                f"{name}: taken as often ({counts[0]:,} and {counts[1]:,} times with {many} "
                f"threads), but not free {waits[0]:,} times in {before.name}, {waits[1]:,} in "
                f"{after.name}"
            )
    return found


def told_of(
    name: str,
    lock: locks.Lock,
    sides: tuple[Side, Side],
    counts: list[int],
    waits: list[int],
    alone: locks.Profile,
    few: int,
) -> str:
    """A lock that one side takes far more often."""
    times = [f"{count:,} times" if count else "never" for count in counts]
    busy = 0 if counts[0] >= counts[1] else 1
    share = min(100 * waits[busy] / max(counts[busy], 1), 100.0)
    with_few = by_name(alone).get(name)
    steady = (
        f", as often with {few}: on every piece of work"
        if len(sides[0].profiles) > 1
        and with_few
        and abs(with_few.taken - counts[busy]) < 0.02 * counts[busy]
        else ""
    )
    stack = " < ".join(own_functions(lock.most.stack)[:4])
    waited = f" ({lock.waited_ns / 1e9:.2f} s of waiting)" if lock.waited_ns > 1e7 else ""
    return (
        f"one {lock.most.kind}, {name}: taken {times[0]} in {sides[0].name}, {times[1]} in "
        f"{sides[1].name}{steady}; {share:.0f} % of the time it was not free{waited}; from {stack}"
    )


def own_functions(stack: Sequence[str]) -> list[str]:
    """Of those that call one another, without how the C library begins a thread."""
    return list(itertools.takewhile(lambda name: not name.startswith(LIBC), stack)) or [stack[0]]


def as_data(explanation: Explanation) -> dict[str, object]:
    """For a program."""

    def side(one: Side) -> Mapping[str, object]:
        return {
            "revision": one.source.revision.id,
            "threads": {
                count: {
                    **{name: told.median for name, told in one.accounted[count].items()},
                    **one.calls.get(count, {}),
                    "locks": one.profiles[count].taken,
                    "contended": one.profiles[count].contended,
                    "by_lock": [
                        {
                            "name": lock.name,
                            "taken": lock.taken,
                            "contended": lock.contended,
                            "waited_s": lock.waited_ns / 1e9,
                            "kind": lock.most.kind,
                            "stack": list(lock.most.stack),
                        }
                        for lock in one.profiles[count].locks
                    ],
                }
                for count in explanation.threads
            },
        }

    return {
        "before": side(explanation.before),
        "after": side(explanation.after),
        "findings": explanation.found,
    }
