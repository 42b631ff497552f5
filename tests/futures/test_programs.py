"""Futures in whole programs: how these end."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest
from bodies import HANGS_AFTER_S

PROGRAMS = {
    "what was begun is done": """
import sys
import time
from deconvoy import future
def says(word):
    time.sleep(0.01)
    # In one piece, not in two as print has it.
    sys.stdout.write(word + "\\n")
for word in ("one", "two", "three"):
    future(says, word)
""",
    "at exit": """
import atexit
from deconvoy import future, touch
import deconvoy.futures as futures
touch(future(int))
@atexit.register
def late():
    print(touch(future(lambda: "one")))
    print(touch(future(lambda: "two")))
    print(futures.wait_for_future(future(lambda: "three")).result())
""",
    "what that begins is done": """
import time
from deconvoy import future
def says(*words):
    time.sleep(0.01)
    print(words[0], flush=True)
    if words[1:]:
        future(says, *words[1:])
future(says, "one", "two", "three")
""",
    "one that is stuck": """
import time
from deconvoy import future
from deconvoy.futures import kill_future
stuck = future(time.sleep, 1000)
while not stuck.running():
    time.sleep(0.001)
time.sleep(0.01)
kill_future(stuck)
print("one two three")
""",
    "with forks": """
from deconvoy import future, touch
import deconvoy.futures as futures
def says(word):
    return word
with futures.with_new_environment("fork"):
    several = [future(says, word) for word in ("one", "two", "three")]
    print(*[touch(one) for one in several], sep="\\n")
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_ends_well(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAMS[name]],
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.split()) == ["one", "three", "two"]


def test_control_c_is_served_while_waiting() -> None:
    program = """
import time
from deconvoy import future, touch
import deconvoy.futures as futures
one = future(time.sleep, 1)
try:
    print("waits", flush=True)
    futures.wait_for_future(one)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    with subprocess.Popen(
        ["env", "--default-signal", sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waits\n"
        time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        assert process.stdout.read() == "interrupted\n"
