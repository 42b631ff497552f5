"""The store of a history: what is kept of builds and runs, in a file or on a server."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy
from deconvoy.errors import UserError
from deconvoy.history.laboratory import comparable
from deconvoy.history.session import opened
from deconvoy.history.store import VERSION, Failure, Round, Store
from tiny import LIMITED, repository

pytestmark = pytest.mark.usefixtures("cache")


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
