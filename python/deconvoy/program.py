"""What a command would start, and whether its GIL can be served.

Nothing is run here: the chain of scripts and `env` is followed to a program file, and that file is
read.
"""

import errno
import os
import re
import shutil
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from deconvoy._native import inspect_elf
from deconvoy.errors import UserError

# Programs that may well start a CPython, but are none and are not meant to: worth a line.
OTHER_RUNTIMES = re.compile(
    r"(perl|jruby|truffleruby|pypy|node|deno|bun|php|lua|luajit|tclsh|guile|sbcl|java|Rscript|R|julia)"
    r"[\d.]*"
)

# As many as the kernel follows.
LONGEST_CHAIN = 5


@dataclass(frozen=True)
class Verdict:
    """Why a program's GIL cannot be served, if that can be told; what starts it."""

    why_not: str | None = None
    # False: the library would keep the program from starting, or make the loader complain.
    can_load: bool = True
    # It is a CPython itself, and not something that may start one.
    is_python: bool = False
    # It is a Ruby.
    is_ruby: bool = False


@dataclass(frozen=True)
class Program:
    argv: tuple[str, ...]
    # The file that is executed for `argv[0]`.
    path: str
    verdict: Verdict

    @property
    def name(self) -> str:
        return os.path.basename(self.argv[0])

    @property
    def note(self) -> str | None:
        """The line for a user whose program cannot be served."""
        if self.verdict.why_not is None:
            return None
        return f"deconvoy: {self.name}: {self.verdict.why_not}; it runs as it is"


def find(command: Sequence[str], environment: Mapping[str, str]) -> Program:
    """Look up a command as a shell would.

    Raises:
        UserError: there is no command, or it cannot be executed.
    """
    if not command or not command[0]:
        raise UserError("no command; write one after `--`, as in: -- python app.py")
    path = look_up(command[0], environment)
    return Program(tuple(command), path, judge(path, command, environment))


def look_up(name: str, environment: Mapping[str, str]) -> str:
    if "/" not in name:
        found = shutil.which(name, path=environment.get("PATH", os.defpath))
        if found is None:
            raise UserError(f"{name}: no such command in PATH")
        return found
    if not os.path.exists(name):
        raise UserError(f"{name}: no such file")
    if os.path.isdir(name):
        raise UserError(f"{name}: a folder, not a program")
    if not os.access(name, os.X_OK):
        raise UserError(f"{name}: not executable; `chmod +x` it or put its interpreter before it")
    return name


def judge(
    path: str, argv: Sequence[str], environment: Mapping[str, str], depth: int = 0
) -> Verdict:
    """Follow scripts and `env` from the file at `path`, started with `argv`, to a program."""
    if depth == LONGEST_CHAIN:
        return Verdict()
    shebang = read_shebang(path)
    if shebang is not None:
        if not os.path.exists(shebang[0]):
            raise UserError(f"{path}: its first line names {shebang[0]}, which is not there")
        return judge(shebang[0], [*shebang, path, *argv[1:]], environment, depth + 1)
    if is_secure(path):
        return Verdict("set-user-ID, set-group-ID or with capabilities, so nothing is preloaded")
    if os.path.basename(path) == "env":
        return judge_env(argv[1:], environment, depth)
    return judge_elf(path, argv, environment)


def is_secure(path: str) -> bool:
    """Whether the kernel starts the program with other rights, which makes the loader careful."""
    try:
        status = os.stat(path)
        if status.st_mode & stat.S_ISUID and status.st_uid != os.geteuid():
            return True
        if status.st_mode & stat.S_ISGID and status.st_gid != os.getegid():
            return True
        return os.geteuid() != 0 and bool(os.getxattr(path, "security.capability"))
    except OSError:
        return False


def read_shebang(path: str) -> list[str] | None:
    """The interpreter and its one argument, as the kernel reads them."""
    try:
        with open(path, "rb") as file:
            line = file.read(256).split(b"\n", 1)[0]
    except OSError:
        return None
    if not line.startswith(b"#!"):
        return None
    return os.fsdecode(line[2:]).split(maxsplit=1) or None


def judge_env(arguments: Sequence[str], environment: Mapping[str, str], depth: int) -> Verdict:
    """What `env ARGUMENTS…` starts: GNU's options, as far as they bear on that."""
    changed = dict(environment)
    rest = list(arguments)
    while rest:
        word = rest.pop(0).rstrip()
        if word in ("-i", "-", "--ignore-environment"):
            return Verdict("`env -i` drops the library with the rest of the environment")
        if word.startswith("--split-string="):
            rest[:0] = word.partition("=")[2].split()
        elif word.startswith("-S"):
            # As one argument of a script's first line, or as two.
            text = word[2:].strip() or (rest.pop(0) if rest else "")
            rest[:0] = text.split()
        elif word in ("-u", "-C", "--unset", "--chdir"):
            del rest[:1]
        elif "=" in word and not word.startswith("-"):
            name, _, value = word.partition("=")
            changed[name] = value
        elif not word.startswith("-"):
            found = shutil.which(word, path=changed.get("PATH", os.defpath))
            return judge(found, [word, *rest], changed, depth + 1) if found else Verdict()
    return Verdict()


def judge_elf(path: str, argv: Sequence[str], environment: Mapping[str, str]) -> Verdict:
    search = [folder for folder in environment.get("LD_LIBRARY_PATH", "").split(":") if folder]
    try:
        program = inspect_elf(path, search)
    except OSError:
        return Verdict()
    if program is None:
        return Verdict()
    ours = inspect_elf("/proc/self/exe")
    assert ours is not None, "this runs in an ELF program"
    if (program["bits"], program["machine"]) != (ours["bits"], ours["machine"]):
        what = f"a {program['bits']}-bit {program['machine']} program, the library is for"
        return Verdict(f"{what} {ours['bits']}-bit {ours['machine']}", can_load=False)
    if program["interpreter"] is None:
        return Verdict("statically linked, so nothing can be preloaded")
    if "ld-musl" in program["interpreter"]:
        return Verdict("linked with musl, where the library cannot be loaded", can_load=False)
    if ruby := ruby_of(program["needed"]):
        return judge_ruby(ruby, environment)
    if not program["has_python"]:
        is_other = OTHER_RUNTIMES.fullmatch(os.path.basename(path))
        if is_other or not (program["starts_programs"] or needs_python(program["needed"])):
            return Verdict("neither a CPython nor a Ruby")
        return Verdict()
    if not (program["has_runtime"] and program["has_config"]):
        version = program["version"] or "of an early version"
        return Verdict(f"CPython {version}, and only 3.8 or later has a GIL that can be served")
    if program["is_free_threaded"] and not has_gil(argv, environment):
        return Verdict("a free-threaded CPython, without a GIL unless PYTHON_GIL=1 is set")
    return Verdict(is_python=True)


def ruby_of(libraries: Sequence[str]) -> tuple[int, int] | None:
    """The version of Ruby that a program is linked to, if it is: from the name of its library
    (`libruby.so.3.4`; Debian's is `libruby-3.1.so.3.1`)."""
    for name in libraries:
        if found := re.fullmatch(r"libruby(?:-[\d.]+)?\.so\.(\d+)\.(\d+)", name):
            return int(found[1]), int(found[2])
    return None


def judge_ruby(version: tuple[int, int], environment: Mapping[str, str]) -> Verdict:
    if version < (2, 6):
        text = ".".join(map(str, version))
        return Verdict(f"Ruby {text}, and only 2.6 or later has a GVL that can be served")
    shares = environment.get("RUBY_MN_THREADS", "").strip() not in ("", "0")
    if shares and version >= (3, 3):
        return Verdict("RUBY_MN_THREADS is set: which thread has the lock cannot be told")
    return Verdict(is_ruby=True)


def needs_python(libraries: Sequence[str]) -> bool:
    return any(name.startswith("libpython") for name in libraries)


def has_gil(argv: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Whether a free-threaded build is told to use its GIL."""
    options = " ".join(argv[1:])
    if found := re.search(r"(?:^| )-X ?gil=([01])\b", options):
        return found[1] == "1"
    return environment.get("PYTHON_GIL") == "1"


def why_not_started(error: OSError, program: Program) -> UserError:
    """An error for a command that the kernel refused."""
    if error.errno == errno.ENOEXEC:
        return UserError(f"{program.path}: neither a program nor a script with a `#!` line")
    if error.errno == errno.ENOENT:
        return UserError(f"{program.path}: its loader or interpreter is not there")
    return UserError(f"{program.path}: {error.strerror}")
