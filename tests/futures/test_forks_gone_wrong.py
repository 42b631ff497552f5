"""Fork futures where something has gone wrong."""

from __future__ import annotations

import gc
import os
import resource
import signal
import subprocess
import sys
import threading
import time
import warnings
from typing import Any

import pytest
from bodies import HANGS_AFTER_S, Gate, add
from deconvoy import futures
from deconvoy.futures import (
    FutureLost,
    future,
    make_environment,
    touch,
    wait_for_any_future,
    wait_for_future,
    with_new_environment,
)
from test_forks import descriptors


def test_a_signal_without_a_name() -> None:
    number = signal.SIGRTMIN + 6
    with with_new_environment("fork", max_threads=1) as made:
        with pytest.raises(FutureLost, match=f"ended by signal {number}"):
            touch(future(lambda: os.kill(os.getpid(), number)))
        assert (touch(future(add, 1)), made.counts) == (2, (0, 0))


def cannot_be_mapped() -> str:
    with with_new_environment("fork", max_threads=1) as made:
        one = future(bytearray, 300_000_000)
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (200_000_000, hard))
        try:
            touch(one)
        except FutureLost as error:
            return f"{error}, {touch(future(add, 1))}, {made.counts}"
    return "mapped"


def test_an_answer_that_finds_no_room_is_told() -> None:
    with with_new_environment("fork"):
        said = touch(future(cannot_be_mapped))
    assert said.startswith("its answer cannot be taken in: ")
    assert said.endswith(", 2, (0, 0)")


def test_what_has_begun_is_not_cancelled(gate: Gate) -> None:
    with with_new_environment("fork", max_threads=1):
        first, second = future(add, 1), future(gate.passes, 3)
        # Nobody has looked since it began.
        gate.has_begun()
        assert not second.cancel()
        gate.open()
        assert (touch(first), touch(second)) == (2, 3)
        waits = [future(gate.passes), future(add, 2)]
        gate.has_begun()
        assert [one.cancel() for one in waits] == [False, True]
        assert waits[1].cancelled()
        gate.open()
        # So many as before may run.
        several = [future(overlaps, gate.opened.with_name("alone")) for _ in range(4)]
        assert not any(touch(one) for one in several)


def overlaps(path: Any) -> bool:
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return True
    time.sleep(0.01)
    os.unlink(path)
    return False


CRASHES = """
import os, signal, sys
import deconvoy.futures as futures

def crashes():
    parent = os.getppid()
    os.kill(parent, signal.SIGKILL)
    while os.getppid() == parent:
        pass
    os.kill(os.getpid(), signal.SIGSEGV)

environment = futures.make_environment("fork", 1)
several = [environment.submit(crashes), *(environment.submit(os.getpid) for _ in range(5))]
signal.pause()
"""


def test_children_that_wait_end_when_nobody_is_left_to_make_room() -> None:
    out, into = os.pipe()
    with subprocess.Popen([sys.executable, "-c", CRASHES], pass_fds=[into]):
        os.close(into)
        # Until all have ended.
        with open(out, "rb") as said:
            assert said.read() == b""


INTERRUPTED = """
import os, signal
import deconvoy.futures as futures

def interrupts(*_):
    raise KeyboardInterrupt

signal.signal(signal.SIGALRM, interrupts)
environment = futures.make_environment("fork", 1)
environment.submit(int).result()
soon = [0.0]
os.register_at_fork(after_in_child=lambda: signal.setitimer(signal.ITIMER_REAL, soon[0]))
for number in range(100):
    soon[0] = (2 + number) * 1e-6
    environment.submit(int).exception()
os.register_at_fork(after_in_child=lambda: signal.setitimer(signal.ITIMER_REAL, 0))
print(environment.submit(int).result())
"""


def test_an_interrupted_child_ends_alone() -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        timeout=HANGS_AFTER_S,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, b"0\n")


def test_a_worker_that_waits_for_a_fork_makes_room(gate: Gate) -> None:
    with make_environment("fork", 1) as forks, with_new_environment("thread", max_threads=1):
        for waits in (
            lambda: touch(forks.submit(gate.passes, 1)),  # type: ignore[arg-type]
            lambda: (forks.submit(gate.passes, 1), touch(forks.wait_for_any(None)))[1],
        ):
            one = future(waits)
            gate.has_begun()
            wait_for_future(future(add, 1), timeout=HANGS_AFTER_S)
            gate.open()
            assert touch(one) == 1


def warns() -> int:
    class Local(DeprecationWarning):
        pass

    warnings.simplefilter("always")
    warnings.warn("local", Local, stacklevel=1)
    return 1


def raises_unspeakable() -> None:
    class Unspeakable(Exception):
        def __str__(self) -> str:
            raise ValueError

    raise Unspeakable


def test_what_cannot_be_sent_beside_an_answer_does_not_lose_it() -> None:
    with with_new_environment("fork"):
        with pytest.warns(DeprecationWarning, match="local"):
            assert touch(future(warns)) == 1
        with pytest.raises(futures.FutureError, match="Unspeakable: … "):
            touch(future(raises_unspeakable))


def test_environments_that_are_dropped_close_what_they_have_open() -> None:
    make_environment("fork", 1).submit(add, 1).result()
    gc.collect()
    before = descriptors()
    for _ in range(3):
        assert make_environment("fork", 1).submit(add, 1).result() == 2
        made = make_environment("fork", 1)
        one = made.submit(add, 1)
        made.shutdown(wait=False)
        assert one.result() == 2
        del made, one
    gc.collect()
    assert descriptors() == before


def begins_more(into: int) -> None:
    # Nobody waits for it.
    future(os.write, into, b".")


def test_what_a_child_has_begun_is_done_when_it_is() -> None:
    out, into = os.pipe()
    with with_new_environment("fork"):
        touch(future(begins_more, into))
    os.close(into)
    with open(out, "rb") as said:
        assert said.read() == b"."


def test_what_one_thread_makes_another_ones_children_do_not_hold() -> None:
    def makes() -> None:
        with make_environment("fork", 1) as mine:
            for number in range(30):
                assert mine.submit(add, number).result() == number + 1

    threads = [threading.Thread(target=makes) for _ in range(4)]
    for thread in threads:
        thread.start()
    with with_new_environment("fork"):
        future(time.sleep, 0.5)
        assert wait_for_any_future(timeout=HANGS_AFTER_S).done()
    for thread in threads:
        thread.join(HANGS_AFTER_S)
        assert not thread.is_alive()
