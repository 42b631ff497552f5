"""Compares method by method, and runs again what came out differently."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from upstreamtests.outcomes import GOOD, Result, Results, is_method
from upstreamtests.runner import LIBRARY, STOCK, Runner
from upstreamtests.tested import Task

RERUNS = 3


@dataclass
class Difference:
    """A method that did not come out the same."""

    task: Task
    method: str
    # The outcomes, in order, by STOCK and LIBRARY.
    outcomes: dict[str, list[str]]
    said: dict[str, str]
    command: str

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
