"""`run` and `trace` pass everything through: status, streams, descriptors, environment."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from commandline import DECONVOY, HANGS_AFTER_S, Deconvoy
from deconvoy import preload
from deconvoy.errors import UserError

BOTH = pytest.mark.parametrize("verb", [("run",), ("trace", "--quiet")], ids=["run", "trace"])


@BOTH
@pytest.mark.parametrize("status", [0, 1, 2, 7, 255])
def test_the_exit_status_is_the_programs(
    deconvoy: Deconvoy, python: str, verb: tuple[str, ...], status: int
) -> None:
    done = deconvoy(*verb, "--", python, "-c", f"raise SystemExit({status})")
    assert (done.returncode, done.stdout, done.stderr) == (status, "", "")


@BOTH
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGABRT])
def test_it_dies_as_the_program_does(
    deconvoy: Deconvoy, python: str, verb: tuple[str, ...], number: signal.Signals
) -> None:
    program = f"import os; os.kill(os.getpid(), {int(number)})"
    done = deconvoy(*verb, "--", python, "-c", program)
    assert done.returncode == -number


@BOTH
def test_streams_are_untouched(python: str, tmp_path: Path, verb: tuple[str, ...]) -> None:
    copy = "import sys; data = sys.stdin.buffer.read()\n"
    copy += "sys.stdout.buffer.write(data); sys.stderr.buffer.write(data[::-1])"
    data = bytes(range(256)) * 500
    done = subprocess.run(
        [*DECONVOY, *verb, "--", python, "-c", copy],
        input=data,
        capture_output=True,
        cwd=tmp_path,
        timeout=HANGS_AFTER_S,
        check=False,
    )
    assert (done.stdout, done.stderr) == (data, data[::-1])


@BOTH
def test_open_descriptors_are_passed_on(tmp_path: Path, verb: tuple[str, ...]) -> None:
    reading, writing = os.pipe()
    command = ["sh", "-c", f"echo through > /proc/self/fd/{writing}"]
    subprocess.run(
        [*DECONVOY, *verb, "--", *command],
        pass_fds=[writing],
        cwd=tmp_path,
        timeout=HANGS_AFTER_S,
        check=True,
    )
    os.close(writing)
    with open(reading) as pipe:
        assert pipe.read() == "through\n"


@BOTH
@pytest.mark.parametrize("ignored", [[], [signal.SIGHUP], [signal.SIGINT, signal.SIGCHLD]])
def test_signal_dispositions_are_passed_on(
    tmp_path: Path, verb: tuple[str, ...], ignored: list[signal.Signals]
) -> None:
    def ignore() -> None:
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)

    look = ["grep", "-E", "Sig(Ign|Blk|Cgt)", "/proc/self/status"]

    def seen(*before: str) -> str:
        return subprocess.run(
            [*before, *look],
            preexec_fn=ignore,
            stdout=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            timeout=HANGS_AFTER_S,
            check=True,
        ).stdout

    assert seen(*DECONVOY, *verb, "--") == seen()


def test_options_after_the_command_are_the_commands(deconvoy: Deconvoy, python: str) -> None:
    show = "import sys; print(sys.argv[1:])"
    for separator in ([], ["--"]):
        done = deconvoy("run", *separator, python, "-c", show, "--policy", "--", "--help")
        assert done.stdout == "['--policy', '--', '--help']\n"


def test_a_shell_script_is_run_silently(deconvoy: Deconvoy, tmp_path: Path) -> None:
    script = tmp_path / "start"
    script.write_text("#!/bin/sh\nexec echo $0 $#\n")
    script.chmod(0o755)
    done = deconvoy("run", "./start", "a b")
    assert (done.returncode, done.stdout, done.stderr) == (0, "./start 1\n", "")


def test_the_environment_says_what_was_asked(deconvoy: Deconvoy) -> None:
    show = ["--", "sh", "-c", 'echo "$LD_PRELOAD" "$DECONVOY_POLICY" "$DECONVOY_EXEC_CHILDREN"']
    library = str(preload.library())
    done = deconvoy("run", *show)
    assert done.stdout == f"{library} adaptive \n"
    done = deconvoy("run", "--policy", "timeout:interval=2ms", "--no-exec-children", *show)
    assert done.stdout == f"{library} timeout:interval=2ms 0\n"
    # Another preloaded library stays, ours is not there twice.
    other = "libm.so.6"
    done = deconvoy("run", *show, env={"LD_PRELOAD": f"{library}:{other}"})
    assert done.stdout == f"{library}:{other} adaptive \n"


def test_an_outer_trace_is_not_written_by_an_inner_run(deconvoy: Deconvoy) -> None:
    show = ["--", "sh", "-c", "echo [$DECONVOY_TRACE]"]
    done = deconvoy("trace", "--quiet", "--", *DECONVOY, "run", *show)
    assert done.stdout == "[]\n"


def test_a_program_that_python_starts_is_served(deconvoy: Deconvoy, python: str) -> None:
    start = "import os, sys; os.execv(sys.executable, [sys.executable, '-c', "
    start += "\"print('libdeconvoy_preload' in open('/proc/self/maps').read())\"])"
    assert deconvoy("run", "--", python, "-c", start).stdout == "True\n"


@pytest.mark.parametrize("letter", [" ", ":", "$"])
def test_a_path_that_ld_preload_cannot_express(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, letter: str
) -> None:
    package = tmp_path / f"my{letter}packages"
    package.mkdir()
    library = package / "libdeconvoy_preload.so"
    library.touch()
    monkeypatch.setattr(preload, "__file__", str(package / "preload.py"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for _ in range(2):
        link = preload.library()
        assert link.resolve() == library
        assert preload.UNSAFE.isdisjoint(str(link))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / f"ca{letter}che"))
    with pytest.raises(UserError, match="XDG_CACHE_HOME"):
        preload.library()


def test_it_is_a_module_and_a_command() -> None:
    command = Path(sys.executable).with_name("deconvoy")
    if not command.exists():
        pytest.skip(f"{command} is missing: deconvoy is not installed")
    by_name = subprocess.check_output([command, "--version"])
    assert by_name == subprocess.check_output([*DECONVOY, "--version"])
