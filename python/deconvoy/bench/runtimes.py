"""What can run a scenario on this machine: every CPython with or without a policy, other languages,
the lab, the simulator."""

from __future__ import annotations

import fnmatch
import os
import re
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from deconvoy import preload
from deconvoy._native import check_lab
from deconvoy.bench import languages, ruby
from deconvoy.bench.languages import Installed
from deconvoy.bench.process import Lacks
from deconvoy.bench.simulated import SIM, Simulation
from deconvoy.bench.simulated import parse as parse_simulation
from deconvoy.errors import UserError
from deconvoy.interpreters import Interpreter, find_interpreters, inspect
from deconvoy.program import judge_ruby

# Behind a policy: the run is traced meanwhile.
TRACE = "+trace"

# Before a lock of the lab's; and what it has programs of.
LAB = "lab:"
LAB_PROGRAMS = ("countdown", "server", "mix")

# What `sys.setswitchinterval` is set to for the rival's curve; None is the default of 5 ms.
SWITCH_INTERVALS_S = (None, 1e-3, 5e-4, 1e-4, 5e-5, 1e-5)

SCENARIOS = Path(__file__).parent.parent / "scenarios"


@dataclass(frozen=True)
class Runtime:
    """Something that runs a scenario: `c`, `ruby3.1`, `cpython3.11`, `cpython3.11+adaptive`,
    `ruby3.1+adaptive`, `lab:adaptive`, `sim:adaptive@8`, and traced meanwhile,
    `cpython3.11+adaptive+trace`."""

    name: str
    description: str
    python: str | None = None
    policy: str | None = None
    lab: str | None = None
    simulation: Simulation | None = None
    # A language other than CPython's.
    installed: Installed | None = None
    traced: bool = False
    # Why neither a policy nor a trace can be had of it.
    why_not: str | None = None
    # Where its traces are kept; None: nowhere, only what they cost matters.
    traces: Path | None = None

    def command(self, scenario: str, program: str, shared: str = "") -> list[str]:
        """The command of a scenario's program, without its arguments. `shared`: what it has in
        common with the programs of other scenarios.

        Raises Lacks where there is no such program, RunFailed where it does not compile.
        """
        if self.simulation is not None:
            raise Lacks("nothing simulates it")
        if self.lab is not None:
            if program not in LAB_PROGRAMS:
                raise Lacks("no program of the lab's")
            command = [sys.executable, "-m", "deconvoy.lab", program, "--lock", self.lab]
            return [*command, "--trace", str(self.trace_folder())] if self.traced else command
        if self.installed is not None:
            source = SCENARIOS / scenario / self.installed.language.file_name(program)
            if not source.exists():
                raise Lacks(f"no program in {self.installed.language.name}")
            common = self.installed.language.file_name(shared, shared=True)
            return languages.command(self.installed, source, SCENARIOS / common if shared else None)
        assert self.python is not None
        return [self.python, str(SCENARIOS / scenario / f"{program}.py")]

    @property
    def modes(self) -> tuple[str, ...]:
        """How it can spread work, beside `sequential`."""
        # A policy has nothing to do where one thread runs all.
        if self.policy or self.traced:
            return ("thread", "fork")
        if self.installed is not None:
            return self.installed.language.modes
        if self.lab is not None or self.simulation is not None:
            return ("thread",)
        return ("thread", "fork", "green", "future-thread", "future-fork")

    def trace_folder(self) -> Path:
        return self.traces or _traces()

    @property
    def intervals_s(self) -> tuple[float | None, ...]:
        """The rival's curve: how often its lock can be made to change hands; None, its default,
        is the longest. Nothing: it has no such setting."""
        if self.python is not None:
            return SWITCH_INTERVALS_S
        return () if self.ruby is None else ruby.slices_s(self.ruby)

    @property
    def ruby(self) -> str | None:
        """The version of a Ruby."""
        one = self.installed
        return one.version if one is not None and one.language.name == "ruby" else None

    def arguments(self, interval_s: float | None) -> list[str]:
        """What tells a program that its lock is to change hands so often, in seconds.

        Raises UserError where that cannot be had.
        """
        if self.ruby is not None:
            return ruby.how_to_have(interval_s, self.ruby)[0]
        return [] if interval_s is None else ["--switch-interval", repr(interval_s)]

    def environment(self, interval_s: float | None = None) -> dict[str, str]:
        """The environment of a run: ours, with the policy put under the interpreter.
        `interval_s`: see `arguments`."""
        base = dict(os.environ) | {"PYTHONDONTWRITEBYTECODE": "1"}
        if self.ruby is not None:
            base |= ruby.how_to_have(interval_s, self.ruby)[1]
        if self.policy is None:
            base.pop("LD_PRELOAD", None)
            return base
        return preload.environment(
            self.policy, base=base, trace=self.trace_folder() if self.traced else None
        )


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="deconvoy-bench-")


def _traces() -> Path:
    """An empty folder for the traces of one run: only their cost matters here."""
    folder = Path(_folder().name)
    for trace in folder.iterdir():
        trace.unlink()
    return folder


@contextmanager
def companions(python: str) -> Iterator[list[str]]:
    """The folders in which a program finds what is not its interpreter's own: deconvoy, and, if
    that is of our version, what is installed beside us (joblib, Dask, NumPy). Nothing if it has no
    GIL and we have, or the other way around: our extension module is of one kind."""
    ours = Path(__file__).parent.parent
    version, free_threaded = version_of(python)
    if free_threaded != is_free_threaded():
        yield []
        return
    if version == sys.version_info[:2]:
        yield [str(ours.parent), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
        return
    with tempfile.TemporaryDirectory(prefix="deconvoy-companions-") as folder:
        Path(folder, "deconvoy").symlink_to(ours)
        yield [folder]


def is_free_threaded() -> bool:
    return bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


@cache
def version_of(python: str) -> tuple[tuple[int, ...], bool]:
    """(major, minor), and whether it is free-threaded."""
    interpreter = inspect(Path(python), "")
    if interpreter is None:
        return (), False
    numbers = tuple(int(part) for part in interpreter.version.split(".")[:2])
    return numbers, interpreter.is_free_threaded


def _cpython(interpreter: Interpreter, name: str, policy: str | None, traced: bool) -> Runtime:
    what = f"{interpreter.version}, {interpreter.path}"
    return Runtime(
        name,
        what,
        python=str(interpreter.path),
        policy=policy,
        traced=traced,
        why_not=interpreter.why_not,
    )


def _installed(one: Installed, name: str, policy: str | None, traced: bool) -> Runtime:
    what = f"{one.full}, {one.command}"
    return Runtime(name, what, installed=one, policy=policy, traced=traced)


def _why_not(found: Interpreter | Installed) -> str | None:
    """Why neither a policy nor a trace can be had of it."""
    if isinstance(found, Interpreter):
        return found.why_not
    if found.language.name == "ruby" and found.version:
        major, minor = map(int, found.version.split("."))
        return judge_ruby((major, minor), os.environ).why_not
    return "only a CPython or a Ruby can have a policy or be traced"


def available() -> tuple[dict[str, Interpreter | Installed], dict[str, str]]:
    """The runtimes found, by name without a policy, and the languages missing, with the reason.

    Of several CPythons of one minor version the one with the lowest patch level counts.
    """
    others, missing = languages.installed()
    found: dict[str, Interpreter | Installed] = {}
    for interpreter in find_interpreters():
        found.setdefault(f"cpython{interpreter.short_version}", interpreter)
    return found | others, missing


def _names(pattern: str, found: Iterable[str]) -> list[str]:
    """Those that a pattern names; a language alone names all its versions."""
    names = [name for name in found if fnmatch.fnmatchcase(name, pattern)]
    return names or [name for name in found if _stem(name) == pattern]


def _stem(name: str) -> str:
    """The language of a runtime's name."""
    return re.sub(r"[\d.]+t?$", "", name)


def _lab(name: str) -> Runtime:
    lock = name.removeprefix(LAB).removesuffix(TRACE)
    try:
        check_lab(lock)
    except ValueError as error:
        raise UserError(str(error)) from None
    return Runtime(name, "toy virtual machine", lab=lock, traced=name.endswith(TRACE))


def _simulated(name: str) -> Runtime:
    simulation = parse_simulation(name.removesuffix(TRACE))
    description = f"simulated, {simulation.cores} cores"
    traced = name.endswith(TRACE)
    return Runtime(name, description, simulation=simulation, traced=traced)


# Runtimes by name, and why others are not there.
Available = tuple[dict[str, Interpreter | Installed], dict[str, str]]


def choose(
    patterns: list[str], traces: Path | None = None, there: Available | None = None
) -> tuple[list[Runtime], dict[str, str]]:
    """The runtimes that the patterns name, in their order: `c`, `ruby`, `cpython*+adaptive`,
    `cpython3.11+timeout:interval=1ms`, `ruby3.1+adaptive`, `cpython3.11+stock+trace`,
    `lab:timer:10ms`, `sim:timer:10ms@8`. A policy is only put under a CPython or a Ruby that it can
    serve. `traces`: a folder to keep traces in. `there`: what is available;
    default: what this machine has.

    Raises UserError for a pattern that names nothing here; what is known and missing is skipped.
    """
    found, missing = there or available()
    skipped: dict[str, str] = {}
    chosen: dict[str, Runtime] = {}
    for pattern in patterns:
        if pattern.startswith(SIM):
            chosen[pattern] = _simulated(pattern)
            continue
        if pattern.startswith(LAB):
            chosen[pattern] = _lab(pattern)
            continue
        base, _, rest = pattern.partition("+")
        policy = rest.removesuffix(TRACE)
        traced = policy != rest
        if rest:
            preload.check_policy(policy)
        names = _names(base, found)
        if not names and (absent := _names(base, missing) or _names(_stem(base), missing)):
            skipped |= {name: missing[name] for name in absent}
            continue
        if not names:
            have = ", ".join(found)
            raise UserError(f"no runtime {base!r} on this machine; there are {have}")
        for name in names:
            interpreter = found[name]
            full_name = f"{name}+{rest}" if rest else name
            if rest and (why_not := _why_not(interpreter)):
                skipped[full_name] = why_not
                continue
            named = full_name, policy or None, traced
            if isinstance(interpreter, Installed):
                chosen.setdefault(full_name, _installed(interpreter, *named))
            else:
                chosen.setdefault(full_name, _cpython(interpreter, *named))
    return [replace(one, traces=traces) for one in chosen.values()], skipped
