"""Futures on forks."""

from __future__ import annotations

import contextlib
import contextvars
import faulthandler
import functools
import gc
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import pytest
from bodies import HANGS_AFTER_S, Gate, add, loops, until
from deconvoy.futures import (
    FutureError,
    FutureLost,
    NoFutures,
    future,
    kill_all_futures,
    kill_future,
    touch,
    wait_for_any_future,
    wait_for_future,
    with_new_environment,
)
from deconvoy.futures.answers import descendants
from deconvoy.futures.fork import CHILD, ForkEnvironment


def test_somebody_else_may_reap_a_child() -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        with with_new_environment("fork"):
            assert touch(future(add, 1)) == 2
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_a_child_has_the_state_of_the_call(gate: Gate) -> None:
    with with_new_environment("fork", max_threads=1):
        state = ["before"]
        first = future(gate.passes)
        waits = future(lambda: state[0])
        state[0] = "after"
        gate.open()
        assert (touch(first), touch(waits)) == (None, "before")
        made: list[int] = []
        touch(future(made.append, 1))
        assert made == []


def aborts() -> None:
    # That of the tests would write to their output.
    faulthandler.disable()
    os.write(2, b"last words\n")
    os.abort()


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "ended by SIGKILL"),
        (lambda: os._exit(3), "exited with status 3 before it had an answer"),
        (lambda: sys.exit(4), r"it called sys.exit\(4\)"),
        (aborts, "SIGABRT.*last words"),
        (lambda: lambda: 1, "its result, a function, cannot be pickled"),
    ],
)
def test_a_child_that_has_no_answer_is_told_with_its_cause(body: Any, says: str) -> None:
    with with_new_environment("fork", max_threads=1) as made:
        with pytest.raises(FutureError, match=says):
            touch(future(body))
        assert made.counts == (0, 0)
        # Its place is there again.
        assert touch(future(add, 1)) == 2


class Odd(Exception):
    def __init__(self, one: int, other: int) -> None:
        super().__init__(f"{one} and {other}")
        self.lock = threading.Lock()


def test_an_error_that_cannot_come_back_says_what_it_was() -> None:
    def raises() -> None:
        raise Odd(1, 2)

    says = r"Odd: 1 and 2 \(which cannot be pickled"
    with with_new_environment("fork"), pytest.raises(FutureError, match=says):
        touch(future(raises))


def test_what_a_child_prints_and_warns_of_is_kept(capfd: pytest.CaptureFixture[str]) -> None:
    def says() -> None:
        print("said")
        os.system("echo by a command")
        warnings.warn("careful", UserWarning, stacklevel=1)

    with with_new_environment("fork") as made:
        one = future(says)
        with pytest.warns(UserWarning, match="careful"):
            touch(one)
        assert made.output(one) == "said\nby a command\n"  # type: ignore[attr-defined]
    assert capfd.readouterr() == ("", "")


def test_large_answers_come_back_whole() -> None:
    with with_new_environment("fork"):
        for size in (0, 1, 65_000, 66_000, 3_000_000):
            assert touch(future(bytes, size)) == bytes(size)
            assert touch(future(bytearray, size)) == bytearray(size)
        several = touch(future(lambda: [bytearray(b"ab") * count for count in (1, 50_000, 7)]))
        assert several == [b"ab", b"ab" * 50_000, b"ab" * 7]
        several[1][0] = 0


def descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


def children() -> list[str]:
    # Those of pytest's own are none.
    listed = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text()
    return listed.split()


def test_nothing_of_a_child_is_left() -> None:
    before, others = descriptors(), children()
    with with_new_environment("fork", max_threads=4):
        several = [future(add, number) for number in range(300)]
        assert sum(touch(one) for one in several) == sum(range(1, 301))
        for _ in range(20):
            future(loops)
        assert kill_all_futures() == 20
        touch(future(bytearray, 200_000))
        with pytest.raises(FutureLost):
            touch(future(os._exit, 1))
    gc.collect()
    assert descriptors() == before
    assert children() == others


def test_a_child_that_does_not_listen_is_killed_all_the_same() -> None:
    def deaf() -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        loops()

    with with_new_environment("fork", max_threads=1):
        one = future(deaf)
        until(one.running)
        time.sleep(0.01)
        assert kill_future(one)
        assert touch(future(add, 1)) == 2
    assert not children()


def tree(gate: Gate) -> None:
    """Has a future of its own, and runs a command."""
    with with_new_environment("fork"):
        future(gate.passes)
        subprocess.run(["sleep", "1000"], check=False)


def test_what_descends_from_a_killed_child_is_killed(gate: Gate) -> None:
    with with_new_environment("fork") as made:
        assert isinstance(made, ForkEnvironment)
        for force in (False, True):
            one = future(tree, gate)
            gate.has_begun()
            pid = one.__dict__[CHILD].pid
            until(functools.partial(has_descendants, pid, 2))
            all_of_it = {pid, *descendants(pid)}
            assert kill_future(one, force=force)
            until(functools.partial(are_over, all_of_it))


def has_descendants(pid: int, many: int) -> bool:
    return len(descendants(pid)) == many


def are_over(pids: set[int]) -> bool:
    return not any(map(is_alive, pids))


def is_alive(pid: int) -> bool:
    with contextlib.suppress(FileNotFoundError):
        # That of a zombie is empty.
        return Path(f"/proc/{pid}/cmdline").read_bytes() != b""
    return False


def dies_after(gate: Gate) -> None:
    """Leaves a child behind."""
    if os.fork() == 0:
        gate.passes()
        os._exit(0)
    with with_new_environment("fork"):
        future(gate.passes)
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_child_that_leaves_others_behind_is_seen_to_end(gate: Gate) -> None:
    with with_new_environment("fork"):
        one = future(dies_after, gate)
        with pytest.raises(FutureLost, match="SIGKILL"):
            touch(one)
        gate.open(2)


ORPHANS = """
import os, signal, sys
from deconvoy import future
import deconvoy.futures as futures

def waits(number):
    parent = os.getppid()
    if number == 0:
        os.kill(parent, signal.SIGKILL)
    while os.getppid() == parent:
        pass
    os.write(int(sys.argv[1]), b"%d" % number)

futures._environments.replace_present(futures.make_environment("fork", 1))
several = [future(waits, number) for number in range(5)]
signal.pause()
"""


def test_children_that_wait_end_with_their_parent() -> None:
    out, into = os.pipe()
    command = [sys.executable, "-c", ORPHANS, str(into)]
    with subprocess.Popen(command, pass_fds=[into]) as process:
        os.close(into)
        # Until all have ended.
        with open(out, "rb") as said:
            assert said.read() == b"0"
    assert process.returncode == -signal.SIGKILL


def test_who_waits_is_woken_when_another_thread_takes_in_what_it_waits_for(gate: Gate) -> None:
    def waits() -> None:
        # Another thread may be the one that gets it.
        with contextlib.suppress(NoFutures):
            wait_for_any_future(timeout=HANGS_AFTER_S)

    with with_new_environment("fork", max_threads=1):
        for _ in range(30):
            one, last = future(gate.passes), future(add, 1)
            contexts = [contextvars.copy_context() for _ in range(2)]
            threads = [threading.Thread(target=it.run, args=(waits,)) for it in contexts]
            threads.append(threading.Thread(target=touch, args=(last,)))
            for thread in threads:
                thread.start()
            gate.has_begun()
            gate.open()
            assert touch(one) is None and touch(last) == 2
            for thread in threads:
                thread.join(HANGS_AFTER_S)
                assert not thread.is_alive()


def touches(one: future[Any]) -> str:
    try:
        return str(touch(one, timeout=HANGS_AFTER_S))
    except FutureLost as error:
        return str(error)


def test_a_child_leaves_the_forks_of_its_parent_alone(gate: Gate) -> None:
    with with_new_environment("fork", max_threads=3):
        one = future(gate.passes, 1)
        gate.has_begun()
        assert "beside this process" in touch(future(touches, one))
        assert touch(future(kill_future, one)) is False
        gate.open()
        assert touch(one) == 1


def writes(array: bytearray | memoryview) -> None:
    array[0] = 5


def test_what_a_child_does_to_a_large_result_is_its_own() -> None:
    numpy = pytest.importorskip("numpy")
    with with_new_environment("fork"):
        zeros = touch(future(numpy.zeros, 10_000))
        touch(future(writes, zeros))
        assert zeros[0] == 0
        zeros[0] = 1


def becomes_another() -> None:
    os.execlp("sleep", "sleep", "1000")


def test_a_child_that_becomes_another_program_is_not_waited_for() -> None:
    with with_new_environment("fork", max_threads=1):
        with pytest.raises(FutureLost, match="has become another program"):
            touch(future(becomes_another))
        assert touch(future(add, 1)) == 2


def deaf_shell() -> None:
    subprocess.run(["sh", "-c", "trap '' TERM; while :; do sleep 0.1; done"], check=False)


def test_a_command_that_does_not_listen_ends_a_second_later() -> None:
    with with_new_environment("fork") as made:
        one = future(deaf_shell)
        until(one.running)
        pid = one.__dict__[CHILD].pid
        until(functools.partial(has_descendants, pid, 2))
        shell = next(iter(descendants(pid)))
        assert kill_future(one)
        until(lambda: made.counts == (0, 0) and not is_alive(shell))


def test_futures_of_the_parent_in_a_forked_child(gate: Gate) -> None:
    """What waits is run there, what runs is lost, and new ones are as ever."""
    with with_new_environment("thread", max_threads=1):
        running = future(gate.passes)
        gate.has_begun()
        waits = future(add, 1)
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                with pytest.raises(FutureLost):
                    touch(running)
                assert touch(waits) == 2
                assert wait_for_future(future(add, 2)).result() == 3
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(pid, 0)[1] == 0
        gate.open()
        assert touch(waits) == 2
