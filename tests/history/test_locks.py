"""The library that counts a program's mutexes, and the reader of what it leaves."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from deconvoy import _native
from deconvoy.history import locks
from deconvoy.history.explain import by_name
from deconvoy.interpreters import find_interpreters
from hypothesis import given, settings
from hypothesis import strategies as st

HERE = Path(__file__).parent
THREADS, TIMES = 3, 20_000


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("locks") / "locks"
    options = ["-O2", "-g", "-Wall", "-o", str(place), str(HERE / "locks.c"), "-lpthread"]
    subprocess.run(["cc", *options], check=True)
    return place


@pytest.fixture(scope="module")
def folder(program: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a run leaves: it answers as it does without the library."""
    command = [str(program), str(THREADS), str(TIMES)]
    subprocess.run(command, check=True)
    place = tmp_path_factory.mktemp("profile")
    subprocess.run(command, check=True, env=locks.environment(place))
    return place


def test_every_acquisition_is_counted_once(folder: Path) -> None:
    whole = locks.profile(folder)
    # The program, and the child that it forks.
    assert (whole.processes, whole.uncounted) == (2, 0)
    named = {lock.name: lock for lock in whole.locks}
    shared = named["shared_mutex (locks)"]
    assert shared.taken == (THREADS + 1) * TIMES
    assert 0 <= shared.contended <= shared.taken
    assert shared.most.stack[:3] == ("take_it", "count_one", "worker")
    readers = named["readers_and_writers (locks)"]
    kinds: Counter[str] = Counter()
    for one in readers.callers.values():
        kinds[one.kind] += one.taken
    # Of the writers' two the second is refused: it would wait for itself.
    assert kinds == {"read lock": 2, "write lock": 2}
    assert named["spinning (locks)"].most.kind == "spin lock"
    assert named["spinning (locks)"].taken == 1


def test_locks_on_the_heap_are_told_by_who_takes_them(folder: Path) -> None:
    heap = [one for one in locks.profile(folder).locks if one.name == "a lock on the heap"]
    functions = {name for lock in heap for caller in lock.callers.values() for name in caller.stack}
    assert {"main", "dies_with", "finds_it_taken"} <= functions
    # The one that waits for what is taken already, for a moment; one refuses to.
    assert sum(one.contended for one in heap) >= 2


def test_totals_are_those_of_all_processes(folder: Path) -> None:
    whole = locks.profile(folder)
    found = locks.totals(folder)
    assert found == {"locks": float(whole.taken), "contended": float(whole.contended)}


def test_more_threads_than_there_are_tables(program: Path, tmp_path: Path) -> None:
    """Some share one."""
    command = [str(program), "50", "40", "12"]
    subprocess.run(command, check=True, env=locks.environment(tmp_path))
    named = {lock.name: lock for lock in locks.profile(tmp_path).locks}
    assert named["shared_mutex (locks)"].taken == (50 * 12 + 1) * 40


def test_an_interpreter_runs_as_it_does_without(tmp_path: Path) -> None:
    served = [one for one in find_interpreters() if one.can_be_served]
    if not served:
        pytest.skip("no CPython with a GIL")
    code = (
        "import threading, os\n"
        "t = [threading.Thread(target=sum, args=(range(10**5),)) for _ in range(4)]\n"
        "[one.start() for one in t]; [one.join() for one in t]\n"
        "if os.fork() == 0: os._exit(0)\n"
        "os.wait(); print('whole')\n"
    )
    done = subprocess.run(
        [str(served[0].path), "-c", code],
        env=locks.environment(tmp_path),
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("whole\n", "")
    assert locks.profile(tmp_path).taken > 100


def test_where_it_cannot_write_it_does_nothing(program: Path, tmp_path: Path) -> None:
    subprocess.run(
        [str(program), "2", "10"], check=True, env=locks.environment(tmp_path / "no" / "folder")
    )
    with pytest.raises(locks.NoNumber, match="the preloaded library was not loaded"):
        locks.totals(tmp_path)


@pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler")
def test_names_of_cpp(tmp_path: Path) -> None:
    source = tmp_path / "it.cpp"
    source.write_text(
        "#include <mutex>\n#include <thread>\nnamespace app { struct Cache {\n"
        "  std::mutex guard; long n = 0;\n"
        "  __attribute__((noinline)) void put() { std::lock_guard<std::mutex> l(guard); n++; }\n"
        "}; Cache cache; }\n"
        "int main() { std::thread t([] { for (int i = 0; i < 1000; i++) app::cache.put(); });\n"
        "  t.join(); return app::cache.n != 1000; }\n"
    )
    command = ["c++", "-O1", "-o", str(tmp_path / "it"), str(source), "-lpthread"]
    subprocess.run(command, check=True)
    place = tmp_path / "profile"
    place.mkdir()
    subprocess.run([str(tmp_path / "it")], check=True, env=locks.environment(place))
    (lock,) = [one for one in locks.profile(place).locks if one.taken == 1000]
    assert lock.name == "app::cache (it)"
    assert "app::Cache::put()" in lock.most.stack


def test_a_process_that_had_no_time_to_begin_left_nothing(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "copy")
    (tmp_path / "copy" / "1.locks").write_bytes(b"")
    (tmp_path / "copy" / "2.locks").write_bytes(bytes(4096))
    assert locks.totals(tmp_path / "copy") == locks.totals(folder)


def test_locks_on_the_heap_of_one_name_are_added_up() -> None:
    def one(caller: str, taken: int, contended: int) -> locks.Lock:
        stack = ("Cache::put", "process", caller)
        return locks.Lock(
            "a lock on the heap", {stack: locks.Caller(stack, "mutex", taken, contended)}
        )

    several = locks.Profile([one("worker", 1_500_000, 10), one("main", 10, 0)])
    (lock,) = by_name(several).values()
    assert (lock.taken, lock.contended) == (1_500_010, 10)


def test_locks_of_one_name_are_told_by_their_files(tmp_path: Path) -> None:
    """`static` in several files of a program."""
    for name, times in (("first", 10), ("second", 20)):
        (tmp_path / f"{name}.c").write_text(
            "#include <pthread.h>\n"
            "static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;\n"
            f"void {name}(void) {{ for (int i = 0; i < {times}; i++)"
            " { pthread_mutex_lock(&lock); pthread_mutex_unlock(&lock); } }\n"
        )
    main = "void first(void), second(void); int main(void) { first(); second(); return 0; }\n"
    (tmp_path / "main.c").write_text(main)
    sources = [str(tmp_path / f"{name}.c") for name in ("main", "first", "second")]
    subprocess.run(["cc", "-o", str(tmp_path / "it"), *sources, "-lpthread"], check=True)
    place = tmp_path / "profile"
    place.mkdir()
    subprocess.run([str(tmp_path / "it")], check=True, env=locks.environment(place))
    taken = {one.name: one.taken for one in locks.profile(place).locks}
    assert taken["first.c: lock (it)"] == 10 and taken["second.c: lock (it)"] == 20


damages = st.lists(
    st.tuples(
        st.one_of(
            st.integers(0, 4096),
            # Maps; the tables; the samples.
            st.integers(4096, 12_000),
            st.integers(4096 + (1 << 20), 4096 + (1 << 20) + 20_000),
            st.integers(3_149_824, 3_149_824 + 40_000),
        ),
        st.binary(min_size=1, max_size=32),
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(damages, st.one_of(st.none(), st.integers(0, 20_000_000)))
def test_a_damaged_profile_is_read_or_refused(
    folder: Path,
    tmp_path_factory: pytest.TempPathFactory,
    damage: list[tuple[int, bytes]],
    length: int | None,
) -> None:
    content = bytearray(sorted(folder.glob("*.locks"))[0].read_bytes())
    for at, value in damage:
        content[at : at + len(value)] = value
    place = tmp_path_factory.getbasetemp() / "damaged.locks"
    place.write_bytes(content[:length])
    with suppress(_native.TraceError):
        told = json.loads(_native.lock_profile_json(os.fspath(place)))
        assert isinstance(told["locks"], list)
