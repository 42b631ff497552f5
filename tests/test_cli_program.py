"""What is said of a program before it is run."""

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest
from commandline import Deconvoy
from deconvoy import program
from deconvoy.errors import UserError
from deconvoy.interpreters import Interpreter
from deconvoy.program import Verdict, find

MAIN = '#include <stdio.h>\nint main(void) { puts("ran"); return 3; }\n'


def verdict(*command: str | Path, env: dict[str, str] | None = None) -> Verdict:
    return find([str(word) for word in command], os.environ | (env or {})).verdict


def compile_c(folder: Path, *options: str, compiler: str = "cc", text: str = MAIN) -> Path:
    """A C program, or a skip when these options do not work here."""
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    source, program = folder / "main.c", folder / "main"
    source.write_text(text)
    command = [compiler, *options, "-o", str(program), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"{' '.join(command)}: {done.stderr.splitlines()[:1]}")
    return program


def assert_runs_as_it_is(deconvoy: Deconvoy, program: Path, why: str) -> None:
    for verb in (["run"], ["trace", "--quiet"]):
        done = deconvoy(*verb, "--", program)
        assert (done.returncode, done.stdout) == (3, "ran\n")
        assert done.stderr.startswith("deconvoy: main: ")
        assert why in done.stderr
        assert done.stderr.endswith("; it runs as it is\n")
        assert done.stderr.count("\n") == 1


def test_a_static_program(deconvoy: Deconvoy, tmp_path: Path) -> None:
    assert_runs_as_it_is(deconvoy, compile_c(tmp_path, "-static"), "statically linked")


def test_a_program_linked_with_musl(deconvoy: Deconvoy, tmp_path: Path) -> None:
    program = compile_c(tmp_path, compiler="musl-gcc")
    assert_runs_as_it_is(deconvoy, program, "musl")


def test_a_program_for_another_processor(deconvoy: Deconvoy, tmp_path: Path) -> None:
    program = compile_c(tmp_path)
    header = bytearray(program.read_bytes())
    header[18:20] = (243).to_bytes(2, "little")  # RISC-V, in `e_machine`
    program.write_bytes(header)
    found = verdict(program)
    assert not found.can_load
    assert "machine 243" in (found.why_not or "")
    done = deconvoy("run", "--", program)
    assert done.returncode == 2


def test_a_set_user_id_program(deconvoy: Deconvoy, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file to another user")
    program = compile_c(tmp_path)
    os.chown(program, 65534, 65534)
    program.chmod(0o755 | stat.S_ISUID)
    assert_runs_as_it_is(deconvoy, program, "set-user-ID")
    script = tmp_path / "script"
    script.write_text(f"#!{program}\n")
    script.chmod(0o755)
    assert verdict(script).why_not


def test_another_program_altogether(deconvoy: Deconvoy, tmp_path: Path) -> None:
    assert_runs_as_it_is(deconvoy, compile_c(tmp_path), "neither a CPython nor a Ruby")


def test_a_program_that_may_start_a_python_is_none_of_our_business(tmp_path: Path) -> None:
    text = "#include <unistd.h>\nint main(int n, char **v) { return execvp(v[1], v + 1); }\n"
    assert verdict(compile_c(tmp_path, text=text)) == Verdict()
    for name in ("sh", "bash", "make", "nice", "timeout"):
        if shutil.which(name):
            assert verdict(name) == Verdict(), name


@pytest.mark.parametrize(
    ("needed", "environment", "found"),
    [
        (["libruby-3.1.so.3.1", "libc.so.6"], {}, Verdict(is_ruby=True)),
        (["libc.so.6", "libruby.so.3.4"], {"RUBY_MN_THREADS": "0"}, Verdict(is_ruby=True)),
        (["libruby.so.2.7"], {"RUBY_MN_THREADS": "1"}, Verdict(is_ruby=True)),
    ],
)
def test_a_ruby_is_known_by_its_library(
    needed: list[str], environment: dict[str, str], found: Verdict
) -> None:
    version = program.ruby_of(needed)
    assert version is not None
    assert program.judge_ruby(version, environment) == found


def test_rubies_that_cannot_be_served_are_told() -> None:
    assert "only 2.6 or later" in (program.judge_ruby((2, 5), {}).why_not or "")
    shares = program.judge_ruby((3, 3), {"RUBY_MN_THREADS": "1"})
    assert "RUBY_MN_THREADS" in (shares.why_not or "")
    assert program.ruby_of(["libc.so.6", "librubyish.so.1"]) is None


@pytest.mark.parametrize("name", ["perl", "jruby", "node"])
def test_other_languages(name: str) -> None:
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")
    assert verdict(name).why_not == "neither a CPython nor a Ruby"


def test_every_interpreter(interpreters: list[Interpreter]) -> None:
    if not interpreters:
        pytest.skip("no CPython found")
    for one in interpreters:
        found = verdict(one.path)
        assert found.can_load
        version = [int(part) for part in one.version.split(".")[:2]]
        if version < [3, 8]:
            assert one.version in (found.why_not or "")
        elif one.is_free_threaded:
            assert "free-threaded" in (found.why_not or "")
        else:
            assert found == Verdict(is_python=True)


def test_a_free_threaded_build_with_its_gil(interpreters: list[Interpreter]) -> None:
    builds = [one.path for one in interpreters if one.is_free_threaded]
    if not builds:
        pytest.skip(f"no free-threaded build among {[str(one.path) for one in interpreters]}")
    for path in builds:
        assert verdict(path, env={"PYTHON_GIL": "1"}) == Verdict(is_python=True)
        assert verdict(path, "-X", "gil=1") == Verdict(is_python=True)
        assert verdict(path, "-Xgil=1") == Verdict(is_python=True)
        assert verdict(path, "-Xgil=0", env={"PYTHON_GIL": "1"}).why_not
        assert verdict("env", "PYTHON_GIL=1", path).why_not is None
        assert verdict(path, env={"PYTHON_GIL": "0"}).why_not


def script(folder: Path, name: str, first_line: str) -> Path:
    path = folder / name
    path.write_text(first_line + "\n")
    path.chmod(0o755)
    return path


def test_scripts_are_followed(tmp_path: Path) -> None:
    program = compile_c(tmp_path)
    first = script(tmp_path, "first", f"#! {program}  -x")
    assert verdict(first) == verdict(program)
    assert verdict(script(tmp_path, "second", f"#!{first}")) == verdict(program)
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    by_env = script(tmp_path, "by_env", "#!/usr/bin/env main")
    assert verdict(by_env, env=path) == verdict(program)
    split = script(tmp_path, "split", "#!/usr/bin/env -S main -x")
    assert verdict(split, env=path) == verdict(program)
    assert verdict("env", "-u", "HOME", "A=1", program) == verdict(program)
    assert "env -i" in (verdict("env", "-i", program).why_not or "")
    assert verdict(script(tmp_path, "shell", "#!/bin/sh")) == Verdict()
    # A chain that the kernel refuses to follow is the kernel's to refuse.
    loop = script(tmp_path, "loop", f"#!{tmp_path}/loop")
    assert verdict(loop) == Verdict()


def test_a_script_without_an_interpreter(tmp_path: Path) -> None:
    orphan = script(tmp_path, "orphan", "#!/no/such/python")
    with pytest.raises(UserError, match="/no/such/python"):
        verdict(orphan)
    assert verdict(script(tmp_path, "odd", "#!")) == Verdict()


def test_a_damaged_program(tmp_path: Path) -> None:
    whole = compile_c(tmp_path).read_bytes()
    for cut in (1, 4, 16, 63, 64, 200, len(whole) // 2):
        damaged = tmp_path / f"cut-{cut}"
        damaged.write_bytes(whole[:cut])
        damaged.chmod(0o755)
        verdict(damaged)
