"""Compares method by method, and runs again what came out differently."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from cpythontests.outcomes import GOOD, Result, Results, is_method
from cpythontests.runner import LIBRARY, STOCK, Runner, Task

RERUNS = 3

# Why some regressions are no fault of the lock: races of CPython's own that whoever wakes another
# thread loses if that one gets the lock at once.  Stock loses them too, with the switch interval
# given, if far more rarely.  They count as regressions all the same.
# By method: from which version, before which, why.
RACES = {
    "InterruptMainTests.test_interrupt_main_subthread": (
        (3, 8),
        (3, 9, 8),
        "an exception between the two lines of Thread.join that take and give back a lock leaves "
        "it locked (bpo-45274); stock hangs with sys.setswitchinterval(1e-5)",
    ),
    "ThreadPoolExecutorTest.test_idle_thread_reuse": (
        (3, 8),
        (3, 16),
        "a worker tells its result before it says that it is idle; stock fails 6 of 1,200 with "
        "sys.setswitchinterval(1e-6)",
    ),
    "InterpreterPoolExecutorTest.test_idle_thread_reuse": (
        (3, 14),
        (3, 16),
        "a worker tells its result before it says that it is idle; stock fails 8 of 80 with "
        "sys.setswitchinterval(1e-6)",
    ),
}


@dataclass
class Difference:
    """A method that did not come out the same."""

    task: Task
    method: str
    # The outcomes, in order, by STOCK and LIBRARY.
    outcomes: dict[str, list[str]]
    said: dict[str, str]
    command: str

    @property
    def race(self) -> str | None:
        """Why it is a race of CPython's own, if it is known for one."""
        since, until, why = RACES.get(".".join(self.method.split(".")[-2:]), ((), (), None))
        return why if since <= self.task.interpreter.version < until else None

    def bad(self, arm: str) -> int:
        return sum(outcome not in GOOD for outcome in self.outcomes[arm])

    @property
    def verdict(self) -> str:
        runs = len(self.outcomes[STOCK])
        if not self.bad(STOCK) and not self.bad(LIBRARY):
            return "skipped one way"
        if self.bad(STOCK) and self.bad(LIBRARY) == runs and self.bad(STOCK) == runs:
            return "fails stock too"
        fatal = {"hang", "crash"}.intersection(self.outcomes[LIBRARY])
        if not self.bad(STOCK) and (self.bad(LIBRARY) > 1 or fatal):
            return "regression"
        return "flaky"


@dataclass
class Report:
    """What came out of one task."""

    task: Task
    compared: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    differences: list[Difference] = field(default_factory=list)

    def of(self, verdict: str) -> list[Difference]:
        return [difference for difference in self.differences if difference.verdict == verdict]


def compare(runner: Runner, task: Task) -> Report:
    report = Report(task)
    first: dict[str, Results] = {}
    for arm in (STOCK, LIBRARY):
        start = time.monotonic()
        first[arm] = runner.run(task, arm, None)
        report.seconds[arm] = round(time.monotonic() - start, 1)
    missing = Result("missing")
    methods = sorted({*first[STOCK], *first[LIBRARY]})
    report.compared = len(methods)
    differ = []
    for method in methods:
        pair = {arm: results.get(method, missing) for arm, results in first.items()}
        outcomes = {arm: [result.outcome] for arm, result in pair.items()}
        said = {arm: result.said for arm, result in pair.items()}
        found = Difference(task, method, outcomes, said, runner.command(task, method))
        if len({result.outcome for result in pair.values()}) > 1:
            differ.append(found)
        if len({result.outcome for result in pair.values()}) > 1 or found.bad(STOCK):
            report.differences.append(found)
    run_again(runner, task, differ)
    return report


def run_again(runner: Runner, task: Task, differ: Sequence[Difference]) -> None:
    if not differ:
        return
    only = [found.method for found in differ]
    chosen = only if all(map(is_method, only)) else None
    for _ in range(RERUNS):
        for arm in (STOCK, LIBRARY):
            results = runner.run(task, arm, chosen)
            for found in differ:
                result = results.get(found.method, Result("missing"))
                found.outcomes[arm].append(result.outcome)
                found.said[arm] = found.said[arm] or result.said
