"""The Rubies under test: those named, or the oldest, the system's and the newest found."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from messages import UserError, say

from upstreamtests.tested import Interpreter, Process

RECORDER, BOOTSTRAP = (Path(__file__).with_name(f"{n}.rb") for n in ("recorder", "bootstrap"))
# Brings Rubies, and the tests of each.
RUBIES = Path(__file__).parent.parent.parent / "rubies"

PROBE = 'print RUBY_ENGINE, " ", RUBY_VERSION'

# As Ruby's own Makefile has it: these want a machine to themselves.
UNWANTED = "!/memory_leak/"

# Why some differences are no fault of the lock: races of Ruby's own. By method.
RACES = {
    "TestThreadQueue#test_queue_close_multi_multi": (
        "it fails if a producer has ended before the thread that starts them all first looks; "
        "stock fails 4 of 40 with 24 producers if that one is held up for 20 ms midway"
    ),
}


@dataclass(frozen=True)
class Ruby(Interpreter):
    language: ClassVar[str] = "Ruby"
    # Ruby tells of it where its main thread is; of SIGABRT it does not.
    hang_signal: ClassVar[signal.Signals] = signal.SIGSEGV

    # Its source, with `test` and `tool`.
    source: Path

    def recorded(self, module: str, patterns: Sequence[str], process: Process) -> list[str]:
        given = [str(process.events), str(process.chosen)]
        return self.runner(["-r", str(RECORDER)], given, module, patterns)

    def repeated(self, module: str, patterns: Sequence[str]) -> list[str]:
        return self.runner([], [], module, patterns)

    def runner(
        self, before: Sequence[str], after: Sequence[str], module: str, patterns: Sequence[str]
    ) -> list[str]:
        library = ["-I", str(self.source / "tool/lib"), *before]
        library += ["-r", str(BOOTSTRAP)] if module.startswith("bootstraptest/") else []
        options = ["-v", "--seed=1", *(f"--name={name}" for name in patterns or [UNWANTED])]
        runner, tests = str(self.source / "test/runner.rb"), str(place(self.source, module))
        return [self.path, "--disable-gems", *library, runner, *after, *options, tests]

    @property
    def variables(self) -> Mapping[str, str]:
        """What its tests start; by itself, a Ruby that was moved would start another."""
        return {"RUBY": self.path}

    def race(self, method: str) -> str | None:
        return RACES.get(method)

    def where(self, log: str) -> str:
        """The innermost line of the backtrace in a fatal error's report."""
        report = r"^-- Ruby level backtrace information -*\n(.*?)\n\n"
        found = re.search(report, log, re.MULTILINE | re.DOTALL)
        return found[1].splitlines()[-1] if found else ""


def place(source: Path, module: str) -> Path:
    return source / ("" if module.startswith("bootstraptest/") else "test") / module


def source_of(version: str) -> Path:
    """Where the tests of a version are: brought, if need be."""
    done = subprocess.run(
        [sys.executable, RUBIES, "source", version], stdout=subprocess.PIPE, text=True
    )
    if done.returncode:
        raise UserError(f"the tests of Ruby {version} cannot be had")
    return Path(done.stdout.rstrip("\n").split("\t")[1])


def probe(path: str) -> str | None:
    """The version of a Ruby that runs, and that is no JRuby or the like."""
    if not (os.path.isfile(path) and os.access(path, os.X_OK)):
        return None
    done = subprocess.run([path, "--disable-gems", "-e", PROBE], capture_output=True, text=True)
    engine, _, version = done.stdout.partition(" ")
    return version if done.returncode == 0 and engine == "ruby" else None


def with_tests(path: str, version: str, modules: Iterable[str]) -> Ruby:
    source = source_of(".".join(version.split(".")[:2]))
    if source.name != f"ruby-{version}":
        say(f"{path} is Ruby {version}, and its tests are those of {source.name}")
    tests = frozenset(module for module in modules if place(source, module).exists())
    return Ruby(version, path, tuple(map(int, version.split("."))), tests, source)


def named(paths: Iterable[str], modules: Sequence[str]) -> list[Ruby]:
    chosen = []
    for path in paths:
        version = probe(path)
        if version is None:
            raise UserError(f"{path} is no Ruby that runs")
        ruby = with_tests(str(Path(path).absolute()), version, modules)
        if not ruby.tests:
            raise UserError(f"{path}: {ruby.source.name} has none of these tests")
        chosen.append(ruby)
    return chosen


def found() -> list[tuple[str, str]]:
    """The versions and the paths of those on this machine, by version."""
    cache = Path(os.environ.get("DECONVOY_CACHE") or Path.home() / ".cache/deconvoy")
    system = sorted(Path("/usr/bin").glob("ruby[0-9].[0-9]"))
    paths = [*system, *sorted(cache.glob("rubies/[0-9]*/bin/ruby"))]
    probed = [(probe(str(path)), str(path)) for path in paths]
    return sorted(
        ((version, path) for version, path in probed if version),
        key=lambda one: tuple(map(int, one[0].split("."))),
    )


def choose(modules: Sequence[str], is_fast: bool) -> list[Ruby]:
    """The oldest, the system's and the newest; fast: less the oldest."""
    able = found()
    if not able:
        raise UserError("no Ruby found; mend: ci/rubies get 2.7 3.1 3.3")
    system = [one for one in able if one[1].startswith("/usr/bin/")]
    chosen = dict.fromkeys([*([] if is_fast else able[:1]), *system, able[-1]])
    return [with_tests(path, version, modules) for version, path in chosen]
