"""Every hazard program of Ruby's with every chosen Ruby, under policies, traced, and watched."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import harness
import pytest
from deconvoy.bench import languages
from deconvoy.bench.languages import Installed
from harness import Result, require_ok

PROGRAMS = sorted(
    path.stem for path in (harness.PROGRAMS / "ruby").glob("*.rb") if path.stem != "hazard"
)

# Those that do not take for ever when the lock changes hands every 100 ms.
WATCHED = ("exits", "fork_exit", "many", "signals")

# A hang becomes a failure.
LIMIT_S = 90


def rubies() -> list[Installed]:
    """Every Ruby found, that in PATH first."""
    found, _ = languages.installed()
    ours = [one for one in found.values() if one.language.name == "ruby"]
    return sorted(ours, key=lambda one: one.command != shutil.which("ruby"))


def chosen() -> list[Installed]:
    """The first; all of them with HAZARDS_INTERPRETERS=all."""
    return rubies()[: None if os.environ.get("HAZARDS_INTERPRETERS") == "all" else 1]


@dataclass(frozen=True)
class Case:
    ruby: Installed
    program: str
    mode: str

    def start(self, built: dict[str, Path]) -> Result:
        path = str(harness.PROGRAMS / "ruby" / f"{self.program}.rb")
        command = ["timeout", "-s", "ABRT", str(LIMIT_S), self.ruby.command, path]
        return harness.run(command, self.mode)

    def __str__(self) -> str:
        return f"{self.ruby.name}-{self.program}-{self.mode}"


def cases() -> list[Case]:
    return [
        Case(ruby, program, mode)
        for ruby in chosen()
        for program in PROGRAMS
        for mode in ("adaptive", "traced", *(["watched"] if program in WATCHED else []))
    ]


@pytest.mark.parametrize("ruby", rubies() or [None], ids=lambda one: one.name if one else "no Ruby")
def test_ruby_is_covered(ruby: Installed | None) -> None:
    """Says which were left out, and why."""
    if ruby is None:
        pytest.skip("no Ruby found (Debian: ruby; others: ci/rubies get 2.7 3.3)")
    if ruby not in chosen():
        pytest.skip("not the one in PATH; HAZARDS_INTERPRETERS=all")


@pytest.mark.parametrize("case", cases(), ids=str)
def test_hazard(case: Case, result: Result) -> None:
    require_ok(result)
    if case.mode in ("watched", "traced") and case.program not in ("alone", "exits"):
        assert result.traces, "no trace was written"
        assert all(start.startswith(b"deconvoy") for start in result.traces)
