"""Signals that reach the tracer reach the program, once."""

import os
import pty
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from commandline import DECONVOY

# Says when it is ready, then the name of each signal; ends with status 5 at SIGUSR2.
LISTENER = """
import os, signal, sys
def tell(number, frame):
    os.write(1, (signal.Signals(number).name + "\\n").encode())
    if number == signal.SIGUSR2:
        os._exit(5)
for name in "HUP INT QUIT TERM USR1 USR2 ALRM".split():
    signal.signal(getattr(signal, "SIG" + name), tell)
os.write(1, b"ready\\n")
while True:
    signal.pause()
"""

Process = subprocess.Popen[str]


@pytest.fixture
def tracer(python: str, tmp_path: Path) -> Iterator[Process]:
    """A traced listener that is ready."""
    # Under `nohup` SIGHUP would be ignored, as it should be.
    command = ["env", "--default-signal", *DECONVOY, "trace", "--quiet"]
    command += ["--", python, "-c", LISTENER]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        assert line(process) == "ready"
        yield process
        process.kill()


def line(process: Process) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.parametrize("name", ["SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGALRM"])
def test_a_signal_is_sent_on_once(tracer: Process, name: str) -> None:
    tracer.send_signal(signal.Signals[name])
    assert line(tracer) == name
    tracer.send_signal(signal.SIGUSR2)
    assert line(tracer) == "SIGUSR2"
    assert tracer.wait() == 5


def test_a_program_that_a_signal_ends(python: str, tmp_path: Path) -> None:
    sleeper = "import signal; print('ready', flush=True); signal.pause()"
    command = [*DECONVOY, "trace", "--", python, "-c", sleeper]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
    )
    assert line(process) == "ready"
    process.terminate()
    _, summary = process.communicate()
    assert process.returncode == -signal.SIGTERM
    assert "the trace is in" in summary


def test_a_key_at_the_terminal_reaches_the_program_once(python: str, tmp_path: Path) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(tmp_path)
        command = [*DECONVOY, "trace", "--quiet", "--", python, "-c", LISTENER]
        os.execv(command[0], command)
    with open(terminal, "rb", buffering=0) as screen:
        seen = b""

        def read_until(word: bytes) -> None:
            nonlocal seen
            while word not in seen:
                seen += screen.read(1000)

        read_until(b"ready")
        os.write(terminal, b"\x03")
        read_until(b"SIGINT")
        # Signals are delivered in order of arrival at the tracer: a second one would be seen first.
        os.kill(pid, signal.SIGUSR2)
        read_until(b"SIGUSR2")
        _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 5
    assert seen.count(b"SIGINT") == 1
