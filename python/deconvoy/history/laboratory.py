"""Measures builds, one at a time, on a quiet machine; keeps every run."""

from __future__ import annotations

import math
import shlex
import shutil
import statistics
import tempfile
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from deconvoy.bench import machine
from deconvoy.bench.guard import guard
from deconvoy.errors import UserError
from deconvoy.history import locks
from deconvoy.history.builds import BENCHMARK, WAITS, Builder, Source, environment_of
from deconvoy.history.metric import COUNTS, PRELOADED, TRACED, NoNumber
from deconvoy.history.project import Project, filled
from deconvoy.history.runs import one_run, system_calls, traced
from deconvoy.history.store import Failure, Round, Store
from deconvoy.history.walk import Busy, build_cost

T = TypeVar("T")

# A round that was made beside other work is made again, for so long, in seconds.
PATIENCE_S = 60.0

# What a step is called that has read a number.
READ = "read "

# What tells that nothing was ever measured is believed after so many builds.
BELIEVED_AFTER = 2


@dataclass
class Laboratory:
    """The machine that measures. `say`: is told what it does. What was measured before is known.

    Methods raise UserError when nothing can be measured for a reason that the user can mend.
    """

    project: Project
    builder: Builder
    store: Store
    machine: int
    say: Callable[[str], None] = lambda _: None
    jobs: int = 1
    failures: dict[str, Failure] = field(default_factory=dict)
    rounds: dict[str, list[Round]] = field(default_factory=lambda: defaultdict(list))
    dropped: int = 0
    # Of builds, how many rounds other machines have made: this one measures for them.
    elsewhere: dict[str, int] | None = None

    def __post_init__(self) -> None:
        self.measure_name = self.project.measure()
        kinds = {self.project.readers[name].kind for name, _ in self.project.metric.uses}
        self._needs_quiet = self.project.quiet and not kinds <= set(COUNTS)
        self.learn({self.machine}, {self.machine})
        self._quiet = machine.Quiet(self._waits)
        kinds = {reader.kind for reader in self.project.readers.values()}
        if kinds & set(TRACED) and shutil.which("strace") is None:
            raise UserError("[read] counts system calls: strace is not installed (Debian: strace)")
        self._round_s: list[float] = []
        self._doubtful: set[str] = set()
        self._tried = False
        self._patience_s = PATIENCE_S

    def _waits(self, foreign_cores: float) -> None:
        self.say(
            f"other programs use {foreign_cores:.1f} cores: waits until they are done; runs beside "
            f"them do not count"
        )

    def learn(self, here: set[int], reference: set[int] | None) -> None:
        """What the store knows. `here`: the machines whose failures count; `reference`: it is
        all told as one of these would have measured it; None: as any, to be looked at."""
        self.failures.clear()
        self.failures.update(self.store.failures(self.builder.recipe, self.measure_name, here))
        threads = self.project.benchmark.threads
        most = machine.QUIET_CORES if self._needs_quiet else None
        known = comparable(self.store.rounds(self.measure_name, threads, most), reference)
        self.rounds.clear()
        for key, several in known.items():
            good = [one for one in several if math.isfinite(self.project.metric.value(one.values))]
            if good:
                self.rounds[key] = good
            else:
                self.failures[key] = Failure("read", f"{self.project.metric.text} is no number")

    # Building.

    def build(self, sources: Sequence[Source], done: Callable[[Source], None]) -> None:
        """Builds those that are not built, several at a time; `done` is called after each."""
        by_key = {one.key: one for one in sources if one.key not in self.failures}
        pool = ThreadPoolExecutor(max(self.jobs, 1))
        try:
            waiting = {pool.submit(self.builder.ensure, one): one for one in by_key.values()}
            for future in as_completed(waiting):
                failure = future.result()
                if failure is not None:
                    self._failed(waiting[future], failure)
                done(waiting[future])
        except BaseException:
            # Others are under way.
            guard.end_all()
            raise
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def ensure(self, source: Source) -> bool:
        """Whether a revision is built."""
        if source.key in self.failures:
            return False
        failure = self.builder.ensure(source)
        if failure is not None:
            self._failed(source, failure)
        return failure is None

    def _failed(self, source: Source, failure: Failure) -> None:
        if failure not in self.failures.values():
            self.say(f"{source.revision.short} cannot be measured: {failure}")
        self.failures[source.key] = failure
        # What a worker of a cluster knows is not all there is.
        if self.elsewhere is None:
            self.blame_the_project(BELIEVED_AFTER)

    def blame_the_project(self, least: int = 1) -> None:
        """Raises UserError if so many builds or numbers failed in a way that only the project file
        can mend, and nothing was ever well."""
        mistakes = [text for one in self.failures.values() if (text := self._mistake(one))]
        if len(mistakes) >= least:
            raise UserError(f"{self.project.file.name}: {mistakes[0]}")

    def _mistake(self, failure: Failure) -> str | None:
        """A failure as a mistake in the project file, unless others were well."""
        if failure.text == WAITS and not self.store.seconds_to_build(self.builder.recipe):
            return f"the step {failure.step!r} {failure.text}"
        if failure.step.startswith(READ) and not self.rounds:
            return f"read.{failure.step.removeprefix(READ)}: {failure.text}"
        return None

    # What is known.

    def cannot(self, source: Source) -> bool:
        return source.key in self.failures

    def is_built(self, source: Source) -> bool:
        return self.builder.has(source.key)

    def known(self, source: Source) -> list[tuple[float, float]]:
        several = self.rounds.get(source.key, ())
        return [(one.at_unix_s, self.project.metric.value(one.values)) for one in several]

    def build_cost(self) -> float | None:
        return build_cost(self.store.seconds_to_build(self.builder.recipe), self._round_s)

    # Measuring.

    def values(self, key: str) -> list[float]:
        """The metric of each round of a build."""
        return [self.project.metric.value(one.values) for one in self.rounds.get(key, ())]

    def measure(self, source: Source) -> float | None:
        """The metric of one more round of a build; None when it does not run.

        Raises Busy.
        """
        if self._needs_quiet and not self._tried and not self.rounds and self.elsewhere is None:
            # Whether it runs at all is no matter of quiet.
            self._tried = True
            trial = self._run(source, self.project.benchmark.threads[0])
            if isinstance(trial, Failure):
                self._failed(source, trial)
                return None
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            if self._needs_quiet and not self._quiet():
                continue
            made = self._round(source)
            if isinstance(made, Failure):
                # After runs that were well it may be a matter of chance: once more.
                if self._rounds_of(source) and source.key not in self._doubtful:
                    self._doubtful.add(source.key)
                    continue
                self._failed(source, made)
                return None
            if made is not None:
                self.rounds[source.key].append(made)
                return self.project.metric.value(made.values)
        raise Busy

    def _rounds_of(self, source: Source) -> int:
        """Made so far, here or elsewhere."""
        return len(self.rounds.get(source.key, ())) + (self.elsewhere or {}).get(source.key, 0)

    def quietly(self, act: Callable[[], T]) -> tuple[T, bool]:
        """What a run gives when nothing else uses the machine, and whether that was so: where times
        are measured it is waited for and tried again, for a while in all."""
        while True:
            if self._needs_quiet:
                self._quiet()
            watch, begun_s = machine.Watch.start(), time.monotonic()
            done = act()
            quiet = watch.foreign_cores() < machine.QUIET_CORES
            self._quiet.ran(quiet)
            if quiet or not self._needs_quiet or self._patience_s < 0:
                return done, quiet
            self._patience_s -= time.monotonic() - begun_s

    def _round(self, source: Source) -> Round | Failure | None:
        """A run with each number of threads, one after the other; None if other work was done
        meanwhile."""
        name = uuid.uuid4().hex[:12]
        counts = list(self.project.benchmark.threads)
        # In turn from the fewest and from the most: a drift in a round cancels over two.
        if self._rounds_of(source) % 2:
            counts.reverse()
        values: dict[int, dict[str, float]] = {}
        begun_s = time.monotonic()
        for threads in counts:
            watch = machine.Watch.start()
            found = self._run(source, threads)
            foreign = watch.foreign_cores()
            quiet = not self._needs_quiet or foreign < machine.QUIET_CORES
            self._quiet.ran(quiet)
            # Beside other work it may have failed for want of time.
            if not quiet and isinstance(found, Failure):
                self.dropped += 1
                return None
            failed = isinstance(found, Failure)
            self.store.ran(
                measure=self.measure_name,
                key=source.key,
                revision=source.revision.id,
                machine=self.machine,
                round=name,
                threads=threads,
                foreign_cores=foreign,
                counts=quiet and not failed,
                values=None if isinstance(found, Failure) else found,
                step=found.step if isinstance(found, Failure) else None,
                failure=found.text if isinstance(found, Failure) else None,
            )
            if isinstance(found, Failure):
                return found
            if not quiet:
                self.dropped += 1
                return None
            values[threads] = found
        value = self.project.metric.value(values)
        if not math.isfinite(value):
            return Failure("read", f"{self.project.metric.text} is no number for {values}")
        self._round_s.append(time.monotonic() - begun_s)
        return Round(name, self.machine, values, time.time())

    def to_run(self, source: Source, threads: int) -> tuple[list[str], Path, dict[str, str]]:
        """The command of the benchmark on a build, where it is run, and what it sees."""
        benchmark = self.project.benchmark
        fields = self.builder.fields(source) | {"threads": threads}
        folder = self.builder.place(source.key) / BENCHMARK
        environment = environment_of(benchmark.environment, self.project.heeded, fields)
        return shlex.split(filled(benchmark.command, fields)), folder, environment

    def _run(self, source: Source, threads: int) -> dict[str, float] | Failure:
        """What is read of one run: of several, if what is read needs a tracer."""
        project = self.project
        command, folder, environment = self.to_run(source, threads)
        limit_s = project.benchmark.limit_s
        kinds = {reader.kind for reader in project.readers.values()}
        counted: dict[str, float] = {}
        printed = ""
        of_calls, of_locks = kinds & set(TRACED), kinds & set(PRELOADED)
        if kinds - set(TRACED) - set(PRELOADED):
            told = one_run(command, folder, environment, limit_s)
            if told.failure is not None:
                return told.failure
            printed, counted = told.printed, told.counted
        values: dict[str, float] = {}
        with tempfile.TemporaryDirectory() as own:
            if of_calls:
                calls = Path(own, "calls")
                told = one_run(traced(command, calls), folder, environment, limit_s)
                if told.failure is not None:
                    return told.failure
                counted |= system_calls(calls.read_text())
            if of_locks:
                profiled = locks.environment(Path(own), environment)
                told = one_run(command, folder, profiled, limit_s)
                if told.failure is not None:
                    return told.failure
                try:
                    counted |= locks.totals(Path(own))
                except NoNumber as error:
                    return Failure(f"{READ}locks", str(error))
        for name, reader in project.readers.items():
            try:
                values[name] = reader.read(printed, counted)
            except NoNumber as error:
                return Failure(f"{READ}{name}", str(error))
        return values


def comparable(
    known: Mapping[str, list[Round]], here: Collection[int] | None
) -> dict[str, list[Round]]:
    """Rounds of several machines as one would have made them: that of `here` (None: of all) which
    has made most; none if none of these has made any. Each number is told in proportion
    to what the machine measured of the builds that both did; rounds of one that has none in common
    are left out."""
    machines = Counter(one.machine for several in known.values() for one in several)
    able = [one for one, _ in machines.most_common() if here is None or one in here]
    if not able:
        return {}
    reference = able[0]
    factors: dict[int, dict[tuple[int, str], float]] = {reference: {}} | {
        other: factors_of(known, reference, other) for other in machines if other != reference
    }
    found: dict[str, list[Round]] = {}
    for key, several in known.items():
        usable = [one for one in several if one.machine == reference or factors[one.machine]]
        if usable:
            found[key] = [scaled(one, factors[one.machine]) for one in usable]
    return found


def factors_of(
    known: Mapping[str, list[Round]], reference: int, other: int
) -> dict[tuple[int, str], float]:
    """How many times more the one machine measures of each number than the other: the median over
    the builds that both measured. Nothing if there is none."""
    ratios: dict[tuple[int, str], list[float]] = defaultdict(list)
    for several in known.values():
        mine = [one for one in several if one.machine == reference]
        its = [one for one in several if one.machine == other]
        if not (mine and its):
            continue
        for threads, values in mine[0].values.items():
            for name in values:
                here, there = (
                    statistics.median(one.values[threads][name] for one in rounds)
                    for rounds in (mine, its)
                )
                ratios[threads, name] += [here / there] if here and there else []
    # Counts that are 0 on one of them tell nothing of the other: they stay as they are.
    return {part: statistics.median(several or [1.0]) for part, several in ratios.items()}


def scaled(one: Round, factors: Mapping[tuple[int, str], float]) -> Round:
    if not factors:
        return one
    values = {
        threads: {name: value * factors[threads, name] for name, value in told.items()}
        for threads, told in one.values.items()
    }
    return replace(one, values=values)
