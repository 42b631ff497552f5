"""Every hazard program of Ruby's with every chosen Ruby, under policies, traced, and watched."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import harness
import pytest
from harness import Result, require_ok

PROGRAMS = sorted(
    path.stem for path in (harness.PROGRAMS / "ruby").glob("*.rb") if path.stem != "hazard"
)

# Those that do not take for ever when the lock changes hands every 100 ms.
WATCHED = ("exits", "fork_exit", "many", "signals")

# A hang becomes a failure.
LIMIT_S = 90


def rubies() -> list[Path]:
    """Every Ruby found that can be served."""
    cache = Path(os.environ.get("DECONVOY_CACHE", Path.home() / ".cache/deconvoy"))
    found = [
        *Path("/usr/bin").glob("ruby[0-9].[0-9]"),
        *Path.home().glob(".rbenv/versions/*/bin/ruby"),
        *cache.glob("rubies/[0-9]*/bin/ruby"),
    ]
    return sorted(found)


def chosen() -> list[Path]:
    """The system's; all of them with HAZARDS_INTERPRETERS=all."""
    if os.environ.get("HAZARDS_INTERPRETERS") == "all":
        return rubies()
    return [path for path in rubies() if path.parent == Path("/usr/bin")][:1] or rubies()[:1]


@dataclass(frozen=True)
class Case:
    ruby: Path
    program: str
    mode: str

    def start(self, built: dict[str, Path]) -> Result:
        path = str(harness.PROGRAMS / "ruby" / f"{self.program}.rb")
        command = ["timeout", "-s", "ABRT", str(LIMIT_S), str(self.ruby), path]
        return harness.run(command, self.mode)

    def __str__(self) -> str:
        name = self.ruby.name if self.ruby.parent == Path("/usr/bin") else self.ruby.parts[-3]
        return f"{name}-{self.program}-{self.mode}"


def cases() -> list[Case]:
    return [
        Case(ruby, program, mode)
        for ruby in chosen()
        for program in PROGRAMS
        for mode in ("adaptive", "traced", *(["watched"] if program in WATCHED else []))
    ]


@pytest.mark.parametrize("ruby", rubies() or [None], ids=str)
def test_ruby_is_covered(ruby: Path | None) -> None:
    """Says which were left out, and why."""
    if ruby is None:
        pytest.skip("no Ruby found (Debian: ruby; others: ci/rubies get 2.7 3.3)")
    if ruby not in chosen():
        pytest.skip("not the system's; HAZARDS_INTERPRETERS=all")


@pytest.mark.parametrize("case", cases(), ids=str)
def test_hazard(case: Case, result: Result) -> None:
    require_ok(result)
    if case.mode in ("watched", "traced") and case.program not in ("alone", "exits"):
        assert result.traces, "no trace was written"
        assert all(start.startswith(b"deconvoy") for start in result.traces)
