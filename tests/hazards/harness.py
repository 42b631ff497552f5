"""Finds interpreters, builds what is written in C, and runs one program under the library."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PROGRAMS = HERE / "programs"
REPOSITORY = HERE.parent.parent

# A program's own watchdog ends it after 60 s with its stacks; this is for those that it misses.
LAST_RESORT_S = 150

MODES: dict[str, dict[str, str]] = {
    "stock": {},
    "adaptive": {"DECONVOY_POLICY": "adaptive"},
    "timeout": {"DECONVOY_POLICY": "timeout"},
    "priority": {"DECONVOY_POLICY": "priority"},
    "watched": {"DECONVOY_POLICY": "stock", "DECONVOY_TRACE": "wanted"},
    "traced": {"DECONVOY_POLICY": "adaptive", "DECONVOY_TRACE": "wanted"},
}
SERVED_MODES = ("adaptive", "timeout", "priority", "traced")

_FACTS = """
import sys, sysconfig
v = sysconfig.get_config_var
print("%d.%d.%d" % sys.version_info[:3])
print(1 if v("Py_GIL_DISABLED") else 0)
print(getattr(sys, "base_prefix", sys.prefix))
print("%s/%s" % (v("LIBDIR"), v("INSTSONAME") or v("LDLIBRARY")))
"""


@dataclass(frozen=True)
class Interpreter:
    path: str
    version: tuple[int, ...]
    free_threaded: bool
    home: str
    libpython: str | None

    @property
    def served(self) -> bool:
        return self.version >= (3, 8) and not self.free_threaded

    @property
    def name(self) -> str:
        place = "system" if self.path.startswith("/usr/") else Path(self.path).parts[-3]
        text = ".".join(map(str, self.version))
        return text if place == text else f"{place}-{text}"


def _ask(path: Path) -> Interpreter | None:
    try:
        out = subprocess.run(
            [path, "-c", _FACTS], capture_output=True, text=True, timeout=30, check=True
        ).stdout.splitlines()
    except (OSError, subprocess.SubprocessError):
        return None
    version = tuple(map(int, out[0].split(".")))
    candidates = [out[3], f"/usr/lib/x86_64-linux-gnu/libpython{version[0]}.{version[1]}.so.1.0"]
    shared = [at for at in candidates[: 2 if str(path).startswith("/usr/") else 1] if ".so" in at]
    libpython = next((at for at in shared if os.path.exists(at)), None)
    return Interpreter(str(path), version, out[1] == "1", out[2], libpython)


@cache
def interpreters() -> list[Interpreter]:
    """Every CPython found, oldest first."""
    cache_folder = Path(os.environ.get("DECONVOY_CACHE", Path.home() / ".cache/deconvoy"))
    paths = [
        *Path("/usr/bin").glob("python3.[0-9]*[0-9]"),
        *Path.home().glob(".pyenv/versions/*/bin/python"),
        *cache_folder.glob("interpreters/[0-9]*/bin/python"),
    ]
    found = [facts for path in sorted(paths) if (facts := _ask(path))]
    return sorted(found, key=lambda facts: (facts.version, facts.path))


def chosen() -> list[Interpreter]:
    """Those that are tested: the system's, the oldest and the newest; all of them with
    HAZARDS_INTERPRETERS=all, and those whose path contains it with any other value."""
    served = [facts for facts in interpreters() if facts.served]
    wanted = os.environ.get("HAZARDS_INTERPRETERS", "")
    if wanted == "all":
        return served
    if wanted:
        return [facts for facts in served if wanted in facts.path]
    system = [facts for facts in served if facts.path.startswith("/usr/")]
    return list(dict.fromkeys([*served[:1], *system[:1], *served[-1:]]))


def modes(interpreter: Interpreter) -> tuple[str, ...]:
    """How an interpreter is tested: the system's in every way but stock, another one under the
    default policy and watched; everything when HAZARDS_INTERPRETERS asks for more."""
    if os.environ.get("HAZARDS_INTERPRETERS"):
        return tuple(MODES)
    if interpreter.path.startswith("/usr/"):
        return tuple(mode for mode in MODES if mode != "stock")
    return ("adaptive", "watched")


def each(scenarios: Sequence[str], those: Sequence[str]) -> Iterator[tuple[Interpreter, str, str]]:
    """Each scenario with each chosen interpreter, in those of its modes."""
    for interpreter in chosen():
        for scenario in scenarios:
            for mode in modes(interpreter):
                if mode in those:
                    yield interpreter, scenario, mode


@cache
def library() -> Path:
    """The preloaded library: the one that DECONVOY_LIBRARY names, else built now."""
    if named := os.environ.get("DECONVOY_LIBRARY"):
        return Path(named)
    subprocess.run(
        ["cargo", "build", "--quiet", "-p", "deconvoy-shim", "--profile", "preload"],
        cwd=REPOSITORY,
        check=True,
    )
    target = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target"))
    return target / "preload" / "libdeconvoy_preload.so"


def compile_c(
    source: str, name: str, folder: Path, *options: str, libraries: tuple[str, ...] = ("-ldl",)
) -> Path:
    out = folder / name
    flags = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-g", "-pthread"]
    command = ["cc", *flags, str(PROGRAMS / source), "-o", str(out), *options, *libraries]
    subprocess.run(command, check=True)
    return out


@dataclass(frozen=True)
class Result:
    status: int
    out: str
    errors: str
    traces: list[bytes]
    """The first bytes of each trace file."""
    command: str


def run(command: list[str], mode: str, **extra: str) -> Result:
    """Runs a program to its end in a process group of its own."""
    with tempfile.TemporaryDirectory(prefix="hazard-") as folder:
        settings = dict(MODES[mode])
        if "DECONVOY_TRACE" in settings:
            settings["DECONVOY_TRACE"] = folder
        if settings:
            settings["LD_PRELOAD"] = str(library())
        settings.update(extra)
        clean = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
        process = subprocess.Popen(
            command,
            env=clean | {"PYTHONDONTWRITEBYTECODE": "1"} | settings,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            out, errors = process.communicate(timeout=LAST_RESORT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGABRT)
            out, errors = process.communicate()
        begun = [path.read_bytes()[:64] for path in sorted(Path(folder).glob("*.trace"))]
        # A process that was killed as it began has written nothing.
        traces = [start for start in begun if start.strip(b"\0")]
        shown = " ".join(f"{key}={value}" for key, value in settings.items())
    line = f"{shown} {' '.join(command)}"
    return Result(process.returncode, out.decode(), errors.decode(errors="replace"), traces, line)


def require_ok(result: Result) -> None:
    last = result.out.strip().splitlines()[-1:]
    if last and last[0].startswith("skipped: "):
        pytest.skip(last[0].removeprefix("skipped: "))
    if result.status != 0 or last != ["ok"]:
        raise AssertionError(
            f"status {result.status}\nagain: {result.command}\n--- out\n{result.out[-3000:]}"
            f"\n--- errors\n{result.errors[-6000:]}"
        )


if __name__ == "__main__":
    for facts in interpreters():
        print(facts, file=sys.stdout)
