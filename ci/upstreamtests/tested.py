"""What is tested: an interpreter with some of its own tests, and one module of them."""

import abc
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

# A method is hung after this; a module ends after the option `--timeout`.
METHOD_LIMIT_S = 150


@dataclass(frozen=True)
class Process:
    """What one process of the tests is given."""

    # Where it writes each event down (see `outcomes.py`).
    events: Path
    # A JSON object: `only`, the methods wanted or null, and `left_out`.
    chosen: Path
    # Its current folder, and that of temporary files.
    work: Path
    # The module's.
    timeout_s: int


@dataclass(frozen=True)
class Interpreter(abc.ABC):
    language: ClassVar[str]
    # What makes a process that hangs tell where it is, and end.
    hang_signal: ClassVar[signal.Signals] = signal.SIGABRT

    name: str
    path: str
    version: tuple[int, ...]
    # Of the modules asked for, those that it has.
    tests: frozenset[str]

    @abc.abstractmethod
    def recorded(self, module: str, patterns: Sequence[str], process: Process) -> list[str]:
        """The command that runs the module's tests and writes down what happens."""

    @abc.abstractmethod
    def repeated(self, module: str, patterns: Sequence[str]) -> list[str]:
        """The same by the language's own means, for a reader."""

    @property
    def variables(self) -> Mapping[str, str]:
        """Of the environment of its tests."""
        return {}

    def race(self, method: str) -> str | None:
        """Why the method is known for a race of the language's own, if it is."""
        return None

    def ended_itself(self, log: str) -> bool:
        """Whether it found out itself that it hung."""
        return False

    @abc.abstractmethod
    def where(self, log: str) -> str:
        """Where a fatal error was, in one line; empty if the log does not tell."""


@dataclass(frozen=True)
class Task:
    """One module, or some methods of it, on one interpreter."""

    interpreter: Interpreter
    module: str
    # As the language's own runner takes them; none: all.
    patterns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Suite:
    """What one of the two commands runs."""

    command: str
    language: str
    # What a module is called in its help.
    module: str
    full: Sequence[str]
    fast: Sequence[str]
    # Those at some paths, and those chosen if none is named (True: for `--fast`); both are told
    # which modules are wanted.
    named: Callable[[Sequence[str], Sequence[str]], Sequence[Interpreter]]
    choose: Callable[[Sequence[str], bool], Sequence[Interpreter]]
