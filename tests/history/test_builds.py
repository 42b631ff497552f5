"""Builds, runs and the store: what is kept, shared, and told of what goes wrong."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import sqlalchemy
from deconvoy.errors import UserError
from deconvoy.files import remove
from deconvoy.history.builds import WAITS
from deconvoy.history.laboratory import comparable
from deconvoy.history.runs import system_calls
from deconvoy.history.session import Session, opened
from deconvoy.history.store import VERSION, Failure, Round, Store
from tiny import PROJECT, repository

LIMITED = PROJECT.replace('["level", "build"]', '["level", "build"]\nlimit = "5s"')


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    # What is counted needs no quiet machine; what is read here is printed as it is.
    monkeypatch.setattr("deconvoy.bench.machine.QUIET_CORES", 1e9)
    return tmp_path / "cache" / "deconvoy" / "history"


@pytest.fixture
def session(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Session]:
    revisions, change = getattr(request, "param", ([{}, {"level": "2"}, {"docs": "x"}], ""))
    repository(tmp_path / "repository", revisions)
    old, _, new = change.partition(" => ")
    (tmp_path / "deconvoy.toml").write_text(LIMITED.replace(old, new) if change else LIMITED)
    with opened(tmp_path / "deconvoy.toml") as found:
        yield found


def test_revisions_that_are_built_from_the_same_share_a_build(session: Session) -> None:
    chain = session.chain()
    assert chain.weights == [0.0, 1.0, 0.0]
    assert chain.distinct == 2
    laboratory = session.laboratory
    assert all(laboratory.ensure(source) for source in chain.sources)
    assert laboratory.builder.made == 2
    assert [laboratory.measure(source) for source in chain.sources] == [1.0, 2.0, 2.0]
    assert len(laboratory.rounds[chain.sources[2].key]) == 2


BROKEN = [
    {},
    {"build": "echo one; echo two >&2; exit 3"},
    {"build": "kill -SEGV $$"},
    {"build": "read answer"},
    {"build": "sleep 60"},
    {"build": "mkdir -p deep; cat /dev/null; true", "level": "none"},
]


@pytest.mark.parametrize("session", [(BROKEN, 'limit = "5s" => limit = "2s"')], indirect=True)
def test_what_fails_is_told_with_its_step_and_last_lines(session: Session, cache: Path) -> None:
    chain, laboratory = session.chain(), session.laboratory
    able = [laboratory.ensure(source) for source in chain.sources]
    assert able == [True, False, False, False, False, True]
    told = [laboratory.failures.get(source.key) for source in chain.sources]
    assert told[1] == Failure("sh ./build", "exit status 3; it said: one / two")
    assert told[2] == Failure("sh ./build", "exit status 139; it said: Segmentation fault")
    assert told[3] == Failure("sh ./build", WAITS)
    assert told[4] is not None and told[4].text.startswith("took longer than 2 s")
    assert laboratory.measure(chain.sources[0]) == 1.0
    assert laboratory.measure(chain.sources[5]) is None
    failure = laboratory.failures[chain.sources[5].key]
    assert failure.step == "read level" and "gives 'none', which is no number" in failure.text
    # Nothing half made is left.
    kept = {path.name for path in (cache / "builds").iterdir() if path.is_dir()}
    assert kept == {chain.sources[0].key, chain.sources[5].key}
    # And nothing that was begun.
    assert not [one for one in psutil.Process().children(True) if one.name() == "sleep"]


@pytest.mark.parametrize("session", [([{"build": "read a"}, {"level": "2"}], "")], indirect=True)
def test_a_recipe_that_waits_for_input_is_the_user_s(session: Session) -> None:
    chain = session.chain()
    assert not session.laboratory.ensure(chain.sources[0])
    with pytest.raises(UserError, match=r"the step 'sh ./build' waits for input"):
        session.laboratory.ensure(chain.sources[1])


@pytest.mark.parametrize(
    "session", [([{}, {"level": "2"}], 'COUNT=(.*)" => COUMT=(.*)"')], indirect=True
)
def test_a_pattern_that_matches_nothing_is_the_user_s(session: Session) -> None:
    chain = session.chain()
    for source in chain.sources:
        assert session.laboratory.ensure(source)
    assert session.laboratory.measure(chain.sources[0]) is None
    with pytest.raises(UserError, match="matches nothing in what the benchmark printed: COUNT=1"):
        session.laboratory.measure(chain.sources[1])


def test_what_a_build_has_made_read_only_is_removed_all_the_same() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as outer:
        place = Path(outer, "place")
        (place / "kept" / "deep").mkdir(parents=True)
        (place / "kept" / "deep" / "file").write_text("x")
        (place / "link").symlink_to(outer)
        Path(outer).chmod(0o755)
        (place / "kept" / "deep").chmod(0o555)
        (place / "kept").chmod(0o000)
        is_root = os.geteuid() == 0
        if is_root:
            # Who may do anything would prove nothing.
            subprocess.run(["chown", "-R", "65534", outer], check=True)
            os.seteuid(65534)
        try:
            with pytest.raises(PermissionError):
                shutil.rmtree(place)
            remove(place)
        finally:
            if is_root:
                os.seteuid(0)
        assert not place.exists() and Path(outer).stat().st_mode & 0o777 == 0o755


LARGE = [{"build": "dd if=/dev/zero of=large bs=1024 count=1024 2>/dev/null"}]
LARGE += [{"level": str(number)} for number in range(2, 6)]


@pytest.mark.parametrize(
    "session", [(LARGE, '[read] => [store]\nsize = "3M"\n[read]')], indirect=True
)
def test_builds_make_room_for_those_that_are_wanted(session: Session, cache: Path) -> None:
    chain, builder = session.chain(), session.laboratory.builder
    for number, source in enumerate(chain.sources):
        assert session.laboratory.ensure(source)
        # As if they were made one after the other, not in one tick of the file system's clock.
        done = builder.place(source.key) / "done.json"
        os.utime(done, (number, number))
    builder.want({chain.sources[0].key})
    over = builder.make_room()
    kept = [builder.has(source.key) for source in chain.sources]
    assert kept[0] and kept[-1] and not kept[1]
    assert over == 0
    builder.want({source.key for source in chain.sources})
    for source in chain.sources:
        assert session.laboratory.ensure(source)
    assert builder.make_room() > 0
    # What another process may be using stays.
    builder.want(set())
    with opened(session.project.file) as other:
        assert other.laboratory.ensure(other.chain().sources[0])
        builder.make_room()
        assert all(builder.has(source.key) for source in chain.sources)
    builder.make_room()
    assert not all(builder.has(source.key) for source in chain.sources)


@pytest.mark.parametrize(
    "session", [([{}, {"level": "2"}], 'limit = "5s" => keep = ["built"]')], indirect=True
)
def test_only_what_is_to_be_kept_is(session: Session) -> None:
    source = session.chain().sources[0]
    assert session.laboratory.ensure(source)
    tree = session.laboratory.builder.place(source.key) / "tree"
    assert [path.name for path in tree.iterdir()] == ["built"]
    assert session.laboratory.measure(source) == 1.0


def test_what_is_known_is_not_done_again(session: Session, tmp_path: Path) -> None:
    chain = session.chain()
    for source in chain.sources:
        assert session.laboratory.ensure(source)
        session.laboratory.measure(source)
    with opened(tmp_path / "deconvoy.toml") as again:
        assert again.laboratory.rounds.keys() == session.laboratory.rounds.keys()
        assert all(again.laboratory.is_built(source) for source in chain.sources)
        assert again.laboratory.ensure(chain.sources[0])
        assert again.laboratory.builder.made == 0
    # Another recipe makes other builds, another pattern other runs.
    file = tmp_path / "deconvoy.toml"
    file.write_text(file.read_text().replace("cp level built", "cp ./level built"))
    with opened(file) as other:
        assert not any(other.laboratory.is_built(source) for source in other.chain().sources)


# The store.


def test_a_newer_store_is_refused(tmp_path: Path) -> None:
    Store(str(tmp_path / "it.db")).close()
    with sqlite3.connect(tmp_path / "it.db") as database:
        database.execute("UPDATE deconvoy_history SET version = ?", (VERSION + 1,))
    database.close()
    with pytest.raises(UserError, match="made by a newer deconvoy"):
        Store(str(tmp_path / "it.db"))


@pytest.mark.parametrize(
    "content", [b"no database, but a text of some length\n" * 40, b"\x00" * 4096]
)
def test_a_damaged_store_is_told(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "it.db").write_bytes(content)
    with pytest.raises(UserError, match=r"store\.address"):
        Store(str(tmp_path / "it.db"))


def test_an_address_that_nobody_has(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"store\.address"):
        Store("nosuch://a/b")
    with pytest.raises(UserError, match=r"store\.address"):
        Store(str(tmp_path / "no" / "folder" / "it.db"))


def test_a_round_that_was_cut_off_does_not_count(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "it.db"))
    here = store.machine({"processor": "x"})
    common = {"measure": "m", "revision": "r", "machine": here, "foreign_cores": 0.0}
    common |= {"step": None, "failure": None}
    for name, threads, counts in (("a", 1, True), ("a", 2, True), ("b", 1, True), ("c", 1, False)):
        values = {"time": float(threads)}
        store.ran(key="k", round=name, threads=threads, counts=counts, values=values, **common)
    rounds = store.rounds("m", (1, 2))["k"]
    assert [one.name for one in rounds] == ["a"]
    assert rounds[0].values == {1: {"time": 1.0}, 2: {"time": 2.0}}
    store.close()


def test_machines_are_compared_by_what_both_measured() -> None:
    def one(machine: int, time: float) -> Round:
        return Round("x", machine, {1: {"time": time}, 2: {"time": time / 2}}, 0.0)

    known = {
        "base": [one(1, 2.0), one(1, 2.2), one(2, 4.2), one(3, 1.0)],
        "there": [one(2, 8.4)],
        "alone": [one(4, 5.0)],
    }
    found = comparable(known, {1})
    assert [told.values[1]["time"] for told in found["there"]] == [pytest.approx(4.2)]
    assert [told.values[2]["time"] for told in found["there"]] == [pytest.approx(2.1)]
    # Nobody knows what another machine would have measured.
    assert "alone" not in found
    # Where nothing was measured here, nothing can be told as this one would have measured it.
    assert comparable(known, {9}) == {}
    # To be looked at, that which has measured most is the measure.
    assert found.keys() == comparable(known, None).keys()
    # A machine that is gone, and measured nothing, is none to compare with.
    assert found.keys() == comparable(known, {1, 9}).keys()
    # Where one has counted none, what the other counts stays.
    known = {"base": [one(1, 0.0), one(2, 3.0)], "there": [one(2, 1e6)]}
    assert comparable(known, {1})["there"][0].values[1]["time"] == 1e6


def test_a_failure_is_over_when_it_went_well_later(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "it.db"))
    here = store.machine({"processor": "x"})
    common = {"measure": "m", "revision": "r", "machine": here, "foreign_cores": 0.0, "key": "k"}
    bad = {"counts": False, "values": None, "step": "read time", "failure": "no number"}
    well = {"counts": True, "values": {"time": 1.0}, "step": None, "failure": None}
    store.ran(round="a", threads=1, **bad, **common)
    assert store.failures("recipe", "m", {here}) == {"k": Failure("read time", "no number")}
    # Others' are left alone.
    store.forget_failures("recipe", "m", {here + 1})
    assert store.failures("recipe", "m", {here})
    store.ran(round="b", threads=1, **well, **common)
    assert store.failures("recipe", "m", {here}) == {}
    store.close()


def test_a_password_is_not_told(tmp_path: Path) -> None:
    address = f"postgresql+psycopg://user:secret@/it?host={tmp_path}"
    with pytest.raises(UserError, match=r"user:\*\*\*@/it") as told:
        Store(address)
    assert "secret" not in str(told.value)


def test_what_cannot_be_checked_out_is_no_failure_of_the_revision(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk may be full."""

    def cannot(*_: object) -> None:
        raise OSError("No space left on device")

    builder = session.laboratory.builder
    source = session.chain().sources[0]
    monkeypatch.setattr(builder, "_export", cannot)
    with pytest.raises(UserError, match="cannot be checked out: No space left on device"):
        session.laboratory.ensure(source)
    assert not session.store.all_of("builds") and not builder.place(source.key).exists()


@pytest.mark.parametrize(
    "session",
    [([{}], '[benchmark] => environment = { VERSION = "{revision}" }\n[benchmark]')],
    indirect=True,
)
def test_a_build_that_knows_its_revision_is_its_own(session: Session) -> None:
    assert session.project.names_revisions


def test_a_cache_that_cannot_be_is_told(tmp_path: Path) -> None:
    repository(tmp_path / "repository", [{}, {"level": "2"}])
    (tmp_path / "file").write_text("x")
    file = tmp_path / "deconvoy.toml"
    file.write_text(LIMITED + "[store]\ncache = 'file/in'\n")
    with (
        pytest.raises(UserError, match=r"builds cannot go to .*: Not a directory: .*store\.cache"),
        opened(file) as found,
    ):
        found.laboratory.ensure(found.chain().sources[0])


@pytest.fixture
def postgresql(tmp_path: Path) -> Iterator[str]:
    """A server of our own, at a socket in a folder."""
    pytest.importorskip("psycopg")
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin")) or [
        Path(shutil.which("initdb") or "").parent
    ]
    if not (programs[-1] / "initdb").exists():
        pytest.skip("no PostgreSQL (Debian: postgresql)")
    initdb, server = programs[-1] / "initdb", programs[-1] / "postgres"
    # It does not run as root.
    as_user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    before = as_user if os.getuid() == 0 else []
    place = Path(f"/tmp/deconvoy-{os.getpid()}")
    place.mkdir(mode=0o777)
    place.chmod(0o777)
    process = None
    try:
        data = place / "data"
        command = [*before, str(initdb), "-D", str(data), "-A", "trust", "-U", "team", "--no-sync"]
        subprocess.run(command, check=True, capture_output=True, cwd="/")
        process = subprocess.Popen(
            [*before, str(server), "-D", str(data), "-k", str(place), "-h", "", "-F"],
            cwd="/",
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        address = f"postgresql+psycopg://team@/postgres?host={place}"
        deadline = time.monotonic() + 60
        while True:
            try:
                Store(address).close()
                break
            except UserError:
                assert time.monotonic() < deadline
                time.sleep(0.1)
        yield address
    finally:
        if process is not None:
            process.terminate()
            process.wait()
        shutil.rmtree(place, ignore_errors=True)


def test_a_team_s_store_on_a_server(postgresql: str, tmp_path: Path) -> None:
    repository(tmp_path / "repository", [{}, {"level": "2"}, {"level": "3"}])
    file = tmp_path / "deconvoy.toml"
    file.write_text(LIMITED + f"[store]\naddress = '{postgresql}'\n")
    with opened(file) as session:
        for source in session.chain().sources:
            assert session.laboratory.ensure(source)
            session.laboratory.measure(source)
    with opened(file) as again:
        assert len(again.laboratory.rounds) == 3
        assert [len(again.store.all_of(table)) for table in ("builds", "runs")] == [3, 3]


def first_starts(address: str) -> None:
    """Of a store, by several processes at a time."""
    program = f"from deconvoy.history.store import Store; input(); it = Store({address!r})\n"
    program += "it.machine({'processor': 'x'}); it.close()"
    started = [
        subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE) for _ in range(4)
    ]
    for process in started:
        assert process.stdin is not None
        process.stdin.write(b"\n")
        process.stdin.flush()
    assert [process.wait() for process in started] == [0] * 4


def test_first_starts_at_a_time_share_a_file(tmp_path: Path) -> None:
    first_starts(str(tmp_path / "it.db"))


def test_first_starts_at_a_time_share_a_server(postgresql: str) -> None:
    engine = sqlalchemy.create_engine(postgresql, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql("CREATE DATABASE another")
    engine.dispose()
    first_starts(postgresql.replace("/postgres?", "/another?"))


def test_what_strace_counts() -> None:
    table = """% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 90.00    0.000100           1       100        20 futex
 10.00    0.000010           1        11           read
------ ----------- ----------- --------- --------- ----------------
100.00    0.000110           0       111        20 total
"""
    assert system_calls(table) == {"system_calls": 111.0, "futex": 100.0}
    without_each = table.replace("100.00    0.000110           0       111        20 total", "")
    assert system_calls(without_each) == system_calls(table)
    assert system_calls("") == {"system_calls": 0.0, "futex": 0.0}
