"""The extension module, written in Rust: crates/py."""

from collections.abc import Callable, Sequence
from os import PathLike
from typing import TypedDict, final

__all__ = [
    "MAX_CORES",
    "POLICY_BYTES",
    "TRACE_VERSION",
    "VERSION",
    "LabServer",
    "TraceError",
    "calibrate_machine",
    "check_costs",
    "check_lab",
    "check_mix",
    "check_policy",
    "cost_presets",
    "export_perfetto",
    "export_trace_event",
    "groups_json",
    "inspect_elf",
    "lab_countdown",
    "lab_mix",
    "policies",
    "replay",
    "report_json",
    "simulate",
    "timeline",
]

VERSION: str
# The version of the trace format that is written; no later one is read.
TRACE_VERSION: int
# The most cores that are simulated.
MAX_CORES: int
# The longest policy text that the preloaded library takes.
POLICY_BYTES: int

class TraceError(ValueError): ...

class _Inspection(TypedDict):
    bits: int
    machine: str
    interpreter: str | None
    needed: list[str]
    libpython: str | None
    has_python: bool
    has_runtime: bool
    has_config: bool
    is_free_threaded: bool
    version: str | None
    starts_programs: bool

# Name, unit (`ns` or `instructions`), default (None: the program's own), least and most as written,
# meaning.
_PolicySetting = tuple[str, str, int | None, str, str, str]

# Name, summary, example, settings (None: it takes rules).
def policies() -> list[tuple[str, str, str, list[_PolicySetting] | None]]: ...
def check_policy(text: str) -> None: ...
def check_lab(lock: str) -> None: ...
def groups_json(path: str | PathLike[str], names: list[str]) -> str: ...
def report_json(path: str | PathLike[str]) -> str: ...

# Both return why some of the files cannot be read.
def export_perfetto(
    paths: Sequence[str | PathLike[str]], out: str | PathLike[str]
) -> list[str]: ...
def export_trace_event(
    paths: Sequence[str | PathLike[str]], out: str | PathLike[str]
) -> list[str]: ...
def inspect_elf(
    path: str | PathLike[str], search: Sequence[str | PathLike[str]] = ...
) -> _Inspection | None: ...
def replay(path: str | PathLike[str]) -> tuple[int, int, int]: ...

# Seconds, and how often the lock went from one thread to another (None: a rival does not say).
def lab_countdown(
    lock: str, workers: int, work: int, trace: str | PathLike[str] | None = None
) -> tuple[float, int | None]: ...

# Seconds.
def lab_mix(lock: str, mix: str, seed: int, trace: str | PathLike[str] | None = None) -> float: ...

@final
class LabServer:
    def __new__(
        cls, lock: str, workers: int, trace: str | PathLike[str] | None = None
    ) -> LabServer: ...
    @property
    def port(self) -> int: ...
    def counts(self) -> list[int]: ...

# The outcome as JSON: see crates/sim/src/outcome.rs.
def simulate(
    policy: str,
    cores: int,
    mix: str,
    costs: str,
    seed: int,
    trace: str | PathLike[str] | None = None,
    command: str = "",
) -> str: ...

# Name and TOML.
def cost_presets() -> list[tuple[str, str]]: ...
def check_costs(text: str) -> str: ...
def check_mix(mix: str) -> int: ...

# Each cost's name, and its value or quantiles in nanoseconds.
def calibrate_machine(said: Callable[[str], object]) -> list[tuple[str, list[float]]]: ...

# Packed: see crates/trace/src/export/page.rs.
def timeline(path: str | PathLike[str]) -> bytes: ...
