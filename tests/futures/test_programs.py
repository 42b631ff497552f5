"""Futures in whole programs: how these end."""

from __future__ import annotations

import os
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
    "some that swallow what they are told": """
import time
from deconvoy import future, touch
from deconvoy.futures import kill_future, kill_all_futures
def deaf():
    while True:
        try:
            time.sleep(0.001)
        except BaseException:
            pass
several = [future(deaf), future(lambda: touch(future(deaf)))]
while not all(one.running() for one in several):
    time.sleep(0.001)
time.sleep(0.01)
kill_all_futures()
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


ON_A_CLUSTER = """
import time
from deconvoy import future, touch
from deconvoy.futures import with_new_environment
with with_new_environment("dask", max_threads=1):
    one = future(time.sleep, 1000)
    while not one.running():
        time.sleep(0.001)
    print("waits", flush=True)
    touch(one)
"""


def test_control_c_of_a_terminal_ends_a_program_and_its_cluster() -> None:
    pytest.importorskip("distributed", reason="futures on a cluster need Dask")
    with subprocess.Popen(
        ["env", "--default-signal", sys.executable, "-c", ON_A_CLUSTER],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waits\n"
        # To all of them.
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=HANGS_AFTER_S)
        assert said.rstrip().endswith("KeyboardInterrupt")


OF_THE_PROGRAM = """
from deconvoy import future, touch
from deconvoy.futures import with_new_environment
class Own(Exception):
    pass
def raises():
    raise Own("mine", 1)
with with_new_environment("dask", max_threads=1):
    try:
        touch(future(raises))
    except Own as error:
        print(error.args)
"""


def test_an_error_of_the_program_comes_back_from_a_cluster_as_what_it_is() -> None:
    pytest.importorskip("distributed", reason="futures on a cluster need Dask")
    done = subprocess.run(
        [sys.executable, "-c", OF_THE_PROGRAM],
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER_S,
        check=False,
    )
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "('mine', 1)\n")
