"""What is printed of all that was compared, and the same as JSON."""

import argparse
from collections.abc import Sequence
from typing import Any

from upstreamtests.compare import Difference, Report
from upstreamtests.runner import LIBRARY, STOCK

RESULT_VERSION = 1


def show(difference: Difference) -> None:
    counts = ", ".join(
        f"{arm} {' '.join(outcomes)}" for arm, outcomes in difference.outcomes.items()
    )
    interpreter, module = difference.task.interpreter, difference.task.module
    print(f"{difference.verdict}: {interpreter.name} {module} {difference.method}: {counts}")
    if difference.verdict != "fails stock too":
        if race := interpreter.race(difference.method):
            print(f"    a race of {interpreter.language}'s own: {race}")
        for arm in (STOCK, LIBRARY):
            if said := difference.said[arm].strip().splitlines():
                print(f"    {arm} said: {said[0][:160]}")
        print(f"    {difference.command}")


def print_reports(reports: Sequence[Report]) -> None:
    verdicts = ("skipped one way", "fails stock too", "flaky", "regression")
    for verdict in verdicts:
        for report in reports:
            for difference in report.of(verdict):
                show(difference)
    print(f"{'interpreter':16} modules  compared  " + "  ".join(f"{v:>15}" for v in verdicts))
    for name in dict.fromkeys(report.task.interpreter.name for report in reports):
        mine = [report for report in reports if report.task.interpreter.name == name]
        compared = sum(report.compared for report in mine)
        counts = [sum(len(report.of(verdict)) for report in mine) for verdict in verdicts]
        columns = "  ".join(f"{count:15}" for count in counts)
        print(f"{name:16} {len(mine):7}  {compared:8}  {columns}")


def as_json(reports: Sequence[Report], options: argparse.Namespace) -> dict[str, Any]:
    return {
        "version": RESULT_VERSION,
        "policy": options.policy,
        "tasks": [
            {
                "interpreter": report.task.interpreter.name,
                "path": report.task.interpreter.path,
                "module": report.task.module,
                "patterns": report.task.patterns,
                "compared": report.compared,
                "seconds": report.seconds,
                "differences": [
                    {
                        "method": found.method,
                        "verdict": found.verdict,
                        "outcomes": found.outcomes,
                        "said": found.said,
                        "command": found.command,
                    }
                    for found in report.differences
                ],
            }
            for report in reports
        ],
    }
