"""The interpreters under test: those named, or the oldest, the system's and the newest found."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from messages import UserError, say

# Lists what this machine has.
LISTING = Path(__file__).parent.parent / "interpreters"
PROBE = Path(__file__).with_name("probe.py").read_text()


@dataclass(frozen=True)
class Interpreter:
    name: str
    path: str
    version: tuple[int, ...]
    is_free_threaded: bool
    # Of those asked for, the modules that it ships.
    tests: frozenset[str]

    @property
    def why_not(self) -> str | None:
        if self.version < (3, 8):
            return "is older than 3.8"
        if self.is_free_threaded:
            return "has no GIL"
        return None if self.tests else "ships none of these tests"


def probe(name: str, path: str, modules: Iterable[str]) -> Interpreter | None:
    done = subprocess.run([path, "-c", PROBE, *modules], capture_output=True, text=True)
    if done.returncode:
        return None
    facts: dict[str, Any] = json.loads(done.stdout)
    version, tests = tuple(facts["version"]), frozenset(facts["tests"])
    return Interpreter(name, path, version, facts["free_threaded"], tests)


def named(paths: Iterable[str], modules: Sequence[str]) -> list[Interpreter]:
    chosen = []
    for path in paths:
        found = probe(path, str(Path(path).absolute()), modules) if os.path.isfile(path) else None
        if found is None:
            raise UserError(f"{path} is no CPython that runs")
        if found.why_not:
            raise UserError(f"{path} {found.why_not}")
        version = ".".join(map(str, found.version))
        chosen.append(Interpreter(version, found.path, found.version, False, found.tests))
    return chosen


def choose(modules: Sequence[str], is_fast: bool) -> list[Interpreter]:
    """The oldest, the system's and the newest that have tests; fast: less the oldest."""
    listing = [sys.executable, str(LISTING), "list", "--json"]
    entries = json.loads(subprocess.check_output(listing))
    probed = [probe(entry["name"], entry["path"], modules) for entry in entries]
    found = sorted((one for one in probed if one), key=lambda one: one.version)
    able = [one for one in found if one.why_not is None]
    if not able:
        raise UserError(
            "no CPython from 3.8 on that ships its tests; mend: "
            "ci/interpreters get --with-tests 3.9 3.11 3.15"
        )
    chosen = [] if is_fast else able[:1]
    for system in (one for one in found if one.name.startswith("system-")):
        alike = [one for one in able if one.version[:2] == system.version[:2]]
        if system.why_not:
            stands_in = f"; {alike[0].name} stands in for it" if alike else ""
            say(f"{system.name} ({system.path}) {system.why_not}{stands_in}")
        chosen += [system] if system in able else alike[:1]
    return list(dict.fromkeys([*chosen, able[-1]]))
