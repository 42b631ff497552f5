"""Futures in great numbers, and in odd places."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from bodies import HANGS_AFTER_S, add
from deconvoy.futures import future, touch, wait_for_all_futures, with_new_environment
from test_forks import children, descriptors

MIB = 1 << 20


def resident() -> int:
    """Memory of this process that is in use, in bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_a_million_thread_futures_leave_nothing() -> None:
    with with_new_environment("thread", max_threads=2) as made:

        def rounds(many: int) -> None:
            for _ in range(many):
                several = [future(add, number) for number in range(1000)]
                assert sum(touch(one) for one in several[::2]) == 250_000
                assert len(wait_for_all_futures(several)) == 1000

        rounds(50)
        gc.collect()
        before, objects = resident(), len(gc.get_objects())
        rounds(950)
        gc.collect()
        assert made.counts == (0, 0)
        assert len(gc.get_objects()) < objects + 100
        assert resident() < before + 4 * MIB


def ten_thousand_forks() -> None:
    open_before, children_before = descriptors(), children()
    with with_new_environment("fork", max_threads=2) as made:

        def rounds(many: int) -> None:
            for _ in range(many):
                several = [future(add, number) for number in range(100)]
                assert sum(touch(one) for one in several) == 5050

        rounds(5)
        gc.collect()
        before, objects = resident(), len(gc.get_objects())
        rounds(95)
        gc.collect()
        assert made.counts == (0, 0)
        assert len(gc.get_objects()) < objects + 100
        assert resident() < before + 4 * MIB
    assert descriptors() == open_before
    assert children() == children_before


def test_ten_thousand_forks_leave_nothing() -> None:
    """In a process that has little beside: a fork copies what there is."""
    folder = Path(__file__).parent
    run(
        f"import sys; sys.path.append({str(folder)!r}); import test_stress as it\n"
        "it.ten_thousand_forks()"
    )


def test_an_environment_that_nobody_has_is_collected() -> None:
    """Also with futures that have finished and that nobody has asked for."""
    program = """
    import gc, weakref
    from deconvoy.futures import make_environment
    made = make_environment("thread", 2, idle_s=0.0)
    gone = weakref.ref(made)
    one = made.submit(int)
    made.submit(list).result(timeout=60)
    while not one.done():
        pass
    made._close()
    made.join()
    del made, one
    gc.collect()
    assert gone() is None
    """
    run(program)


@pytest.mark.parametrize("module", ["_xxsubinterpreters", "_interpreters"])
def test_another_interpreter_of_the_process_is_told(module: str) -> None:
    if sys.version_info < (3, 13) and module == "_interpreters":
        pytest.skip("of Python 3.13 and later")
    if sys.version_info >= (3, 13) and module == "_xxsubinterpreters":
        pytest.skip("of Python before 3.13")
    program = f"""
    import {module} as interpreters
    import deconvoy.futures
    other = interpreters.create()
    try:
        failed = interpreters.run_string(other, "import deconvoy.futures")
        print(failed)
    except Exception as error:
        print(error)
    interpreters.destroy(other)
    """
    assert "subinterpreters" in run(program)


def run(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=5 * HANGS_AFTER_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout
