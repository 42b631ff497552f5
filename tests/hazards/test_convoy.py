"""Threads of one program that hand work to each other through its locks do not switch more often
under `adaptive` than they need to: a lock convoy has one switch or two for each item.

The switches are the kernel's count of how often a thread gave its processor up to wait."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import harness
import pytest
from harness import Interpreter, Result, require_ok

PROGRAM = str(harness.PROGRAMS / "convoy.py")
SCENARIOS = ["queue", "pair", "pool", "signals", "several"]
# Of the others it is the outcome that counts.
JUDGED = ("queue", "pair", "pool")
MODES = ("stock", "adaptive", "traced")


@dataclass(frozen=True)
class Case:
    interpreter: Interpreter
    scenario: str
    mode: str

    def start(self, built: dict[str, Path]) -> Result:
        return harness.run([self.interpreter.path, PROGRAM, self.scenario], self.mode)

    def __str__(self) -> str:
        return f"{self.interpreter.name}-{self.scenario}-{self.mode}"


@pytest.mark.parametrize(
    "case",
    [Case(*one) for one in harness.each(SCENARIOS, MODES)],
    ids=str,
)
def test_handing_work_over_is_no_convoy(case: Case, result: Result) -> None:
    require_ok(result)
    done = json.loads(result.out.splitlines()[0])
    print(done)
    if case.mode != "stock" and case.scenario in JUDGED:
        # Ours: 0.01 to 0.05 an item; with a convoy: 1 to 3.
        assert done["switches"] <= 0.3 * done["items"]
