"""The interpreters under test: those named, or the oldest, the system's and the newest found."""

import dataclasses
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from messages import UserError, say

from upstreamtests.tested import METHOD_LIMIT_S, Interpreter, Process

# Lists what this machine has.
LISTING = Path(__file__).parent.parent.parent / "interpreters"
PROBE = Path(__file__).with_name("probe.py").read_text()

# Passed on as a text: the folder of a script would be in sys.path, and multiprocessing's children
# would run the script once more.
RECORDER = Path(__file__).with_name("recorder.py").read_text()

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


@dataclass(frozen=True)
class CPython(Interpreter):
    language: ClassVar[str] = "CPython"

    is_free_threaded: bool

    def recorded(self, module: str, patterns: Sequence[str], process: Process) -> list[str]:
        script = ("-c", RECORDER, str(process.events), str(process.chosen))
        folder = ("--tempdir", str(process.work))
        limit = ("--timeout", str(process.timeout_s))
        return [self.path, *script, "-v", *limit, *folder, *matching(patterns), module]

    def repeated(self, module: str, patterns: Sequence[str]) -> list[str]:
        limit = ("--timeout", str(METHOD_LIMIT_S))
        return [self.path, "-m", "test", "-v", *limit, *matching(patterns), module]

    def race(self, method: str) -> str | None:
        since, until, why = RACES.get(".".join(method.split(".")[-2:]), ((), (), None))
        return why if since <= self.version < until else None

    def ended_itself(self, log: str) -> bool:
        return bool(re.search(r"^Timeout \(\d", log, re.MULTILINE))

    def where(self, log: str) -> str:
        """The top of a fatal error's traceback."""
        found = re.search(r"^(Fatal|Timeout \().*?^  File (.*?)$", log, re.MULTILINE | re.DOTALL)
        return found[2] if found else ""

    @property
    def why_not(self) -> str | None:
        if self.version < (3, 8):
            return "is older than 3.8"
        if self.is_free_threaded:
            return "has no GIL"
        return None if self.tests else "ships none of these tests"


def matching(patterns: Sequence[str]) -> list[str]:
    return [part for pattern in patterns for part in ("-m", pattern)]


def probe(name: str, path: str, modules: Iterable[str]) -> CPython | None:
    done = subprocess.run([path, "-c", PROBE, *modules], capture_output=True, text=True)
    if done.returncode:
        return None
    facts: dict[str, Any] = json.loads(done.stdout)
    version, tests = tuple(facts["version"]), frozenset(facts["tests"])
    return CPython(name, path, version, tests, facts["free_threaded"])


def named(paths: Iterable[str], modules: Sequence[str]) -> list[CPython]:
    chosen = []
    for path in paths:
        runs = os.path.isfile(path) and os.access(path, os.X_OK)
        found = probe(path, str(Path(path).absolute()), modules) if runs else None
        if found is None:
            raise UserError(f"{path} is no CPython that runs")
        if found.why_not:
            raise UserError(f"{path} {found.why_not}")
        version = ".".join(map(str, found.version))
        chosen.append(dataclasses.replace(found, name=version))
    return chosen


def choose(modules: Sequence[str], is_fast: bool) -> list[CPython]:
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
