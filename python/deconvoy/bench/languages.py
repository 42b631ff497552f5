"""Languages beside CPython: what runs their programs on this machine, and how these are prepared.

A program that has to be compiled is compiled once for its text and its compiler.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from glob import glob
from pathlib import Path

from deconvoy.bench.process import RunFailed
from deconvoy.files import cache_folder
from deconvoy.interpreters import brought

# A command that says its version is waited for so long, in seconds.
VERSION_LIMIT_S = 20.0

# And a compiler, which may compile a library first.
COMPILE_LIMIT_S = 300.0

# Compiles a source, by a command, into a folder; the command that runs it is returned. The last is
# the file that the programs of several scenarios share, if this is one of them.
Compile = Callable[[str, Path, Path, Path | None], list[str]]


@dataclass(frozen=True)
class Language:
    """One that scenarios have programs in.

    `name`: also of its runtimes, with the version behind it. `commands`: what runs or compiles a
    program; the first that is found. `package`: Debian's that brings it. `version`: arguments with
    which it says its version, and `pattern` where in that this is. `modes`: how its programs can
    spread their work, beside `sequential`.
    """

    name: str
    suffix: str
    commands: tuple[str, ...]
    package: str
    version: tuple[str, ...]
    pattern: str
    modes: tuple[str, ...]
    compile: Compile | None = None
    # Of a file that several programs share, if it is another one.
    shared_suffix: str = ""
    # Where its libraries are: what is compiled before one is there is compiled again.
    libraries: str = ""
    # Where other versions of it are, each a runtime of its own: patterns of files, in the home
    # folder (`~`), or where `ci/rubies` puts them (`{brought}`).
    others: tuple[str, ...] = ()

    def file_name(self, program: str, shared: bool = False) -> str:
        # A class of Java is called as its file.
        stem = program.capitalize() if self.name == "java" else program
        return stem + ((shared and self.shared_suffix) or self.suffix)


@dataclass(frozen=True)
class Installed:
    """A language on this machine. `version`: as short as its runtimes are told apart by; `full`: as
    it says itself."""

    language: Language
    command: str
    version: str
    full: str

    @property
    def name(self) -> str:
        return f"{self.language.name}{self.version}"


def compile_c(command: str, source: Path, folder: Path, shared: Path | None) -> list[str]:
    options = ["-O2", "-pthread", "-o", str(folder / "program")]
    run(source, [command, *options, str(source), "-lm"])
    return [str(folder / "program")]


def compile_go(command: str, source: Path, folder: Path, shared: Path | None) -> list[str]:
    # Nothing is fetched: the programs need no module, and no other version of Go. Threads are made
    # by Go, not by the C library.
    environment = os.environ | {"GO111MODULE": "off", "GOTOOLCHAIN": "local", "CGO_ENABLED": "0"}
    # What is compiled together has to be in one folder.
    files = [str(shutil.copy(file, folder)) for file in (source, shared) if file is not None]
    run(source, [command, "build", "-o", str(folder / "program"), *files], environment)
    return [str(folder / "program")]


def compile_java(command: str, source: Path, folder: Path, shared: Path | None) -> list[str]:
    java = Path(command).with_name("java")
    path = ["-sourcepath", str(shared.parent)] if shared else []
    run(source, [command, *path, "-d", str(folder), str(source)])
    return [str(java), "-cp", str(folder), source.stem]


def compile_lisp(command: str, source: Path, folder: Path, shared: Path | None) -> list[str]:
    image = folder / "program"
    save = f'(save-lisp-and-die "{image}" :executable t :toplevel #\'main :save-runtime-options t)'
    options = ["--noinform", "--no-userinit", "--non-interactive"]
    run(source, [command, *options, "--load", str(source), "--eval", save])
    return [str(image)]


def run(source: Path, command: list[str], environment: dict[str, str] | None = None) -> None:
    """Raises RunFailed with the first error that it tells of, when it fails."""
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            env=environment,
            timeout=COMPILE_LIMIT_S,
        )
    except subprocess.TimeoutExpired as error:
        raise RunFailed(f"{source.name} is compiled for more than {error.timeout} s") from error
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines() or ["it does not say why"]
        why = next((line for line in said if "error" in line.lower()), said[0])
        raise RunFailed(f"{source.name} does not compile: {why}")


LANGUAGES = (
    Language(
        "c", ".c", ("cc", "gcc", "clang"), "gcc", ("-dumpversion",), r"^(\d+)", ("thread", "fork"),
        compile_c, ".h",
    ),
    Language(
        "pypy", ".py", ("pypy3",), "pypy3", ("--version",), r"Python (\d+\.\d+)",
        ("thread", "fork", "green"),
    ),
    Language(
        "ruby", ".rb", ("ruby",), "ruby", ("--version",), r"ruby (\d+\.\d+)",
        ("thread", "fork", "green"),
        others=("~/.rbenv/versions/*/bin/ruby", "{brought}/rubies/[0-9]*/bin/ruby"),
    ),
    Language(
        "perl", ".pl", ("perl",), "perl", ("-e", "printf 'v%vd', $^V"), r"v(\d+\.\d+)",
        ("thread", "fork"),
    ),
    Language("tcl", ".tcl", ("tclsh",), "tcl", (), r"(\d+\.\d+)", ("thread",)),
    Language(
        "sbcl", ".lisp", ("sbcl",), "sbcl", ("--version",), r"SBCL (\d+\.\d+)", ("thread", "fork"),
        compile_lisp, libraries="/usr/share/common-lisp/systems",
    ),
    Language(
        "java", ".java", ("javac",), "default-jdk-headless", ("-version",), r"javac (\d+)",
        ("thread",), compile_java,
    ),
    Language(
        "go", ".go", ("go",), "golang-go", ("version",), r"go(\d+\.\d+)", ("thread", "green"),
        compile_go,
    ),
    Language("node", ".js", ("node",), "nodejs", ("--version",), r"v(\d+)", ("thread",)),
)  # fmt: skip


@cache
def installed() -> tuple[dict[str, Installed], dict[str, str]]:
    """The languages of this machine, by the name of their runtimes, and why others are not."""
    found: dict[str, Installed] = {}
    missing: dict[str, str] = {}
    for language in LANGUAGES:
        commands = commands_of(language)
        if not commands:
            missing[language.name] = f"not installed: apt-get install {language.package}"
        for one in sorted((inspect(language, each) for each in commands), key=version_key):
            found.setdefault(one.name, one)
    return found, missing


def commands_of(language: Language) -> list[str]:
    """What is called by its name, and other versions."""
    here = next(filter(None, map(shutil.which, language.commands)), None)
    patterns = [each.format(brought=brought()) for each in language.others]
    others = [path for each in patterns for path in sorted(glob(os.path.expanduser(each)))]
    return ([here] if here else []) + [path for path in others if os.access(path, os.X_OK)]


def version_key(one: Installed) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", one.version)]


def inspect(language: Language, command: str) -> Installed:
    # Tcl says its version only to a program.
    asked = "puts [info patchlevel]\n" if language.name == "tcl" else ""
    try:
        done = subprocess.run(
            [command, *language.version],
            input=asked,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=VERSION_LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        said = ""
    else:
        said = (done.stdout or done.stderr).strip()
    version = re.search(language.pattern, said)
    # There is one C compiler, and its version is no runtime's.
    short = version.group(1) if version and language.name != "c" else ""
    return Installed(language, command, short, said.splitlines()[0] if said else "version unknown")


def command(one: Installed, source: Path, shared: Path | None = None) -> list[str]:
    """What runs a program, without its arguments; compiled first where that has to be. `shared`:
    the file that it has in common with others.

    Raises RunFailed when it does not compile.
    """
    if (compile := one.language.compile) is None:
        return [one.command, str(source)]
    return _compiled(one, source, shared, compile)


@cache
def _compiled(one: Installed, source: Path, shared: Path | None, compile: Compile) -> list[str]:
    text = source.read_bytes() + (shared.read_bytes() if shared else b"")
    code = compile.__code__
    how = (one.full, one.command, platform.machine(), code.co_code, code.co_consts)
    text += repr(how).encode()
    if one.language.libraries:
        text += repr(sorted(Path(one.language.libraries).glob("*"))).encode()
    digest = hashlib.sha256(text).hexdigest()[:16]
    programs = cache_folder() / "bench"
    folder = programs / f"{source.parent.name}-{source.stem}-{one.language.name}-{digest}"
    written = folder / "command"
    if not written.exists():
        programs.mkdir(parents=True, exist_ok=True)
        made = tempfile.mkdtemp(dir=programs)
        try:
            ran = compile(one.command, source, Path(made), shared)
            Path(made, "command").write_text("\0".join(ran).replace(made, str(folder)))
            with contextlib.suppress(OSError):
                # Another process may have been quicker.
                os.rename(made, folder)
        finally:
            shutil.rmtree(made, ignore_errors=True)
    return written.read_text().split("\0")
