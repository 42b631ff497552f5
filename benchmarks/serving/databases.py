"""A redis-server and a PostgreSQL of our own: in temporary folders, on the loopback interface or a
socket in that folder, ended with the `with` they are made in."""

from __future__ import annotations

import getpass
import os
import pwd
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deconvoy.bench.process import RunFailed
from deconvoy.errors import UserError

from serving.child import Child, clean_environment, finished

START_PATIENCE_S = 60.0

# The rows that programs/postgres_client.py selects from.
TABLE = """
create table item (id integer primary key, square integer not null);
insert into item select n, n * n from generate_series(0, 999) as n;
analyze item;
"""


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def why_no_redis() -> str | None:
    return None if shutil.which("redis-server") else "redis-server is missing: benchmarks/packages"


@contextmanager
def redis() -> Iterator[str]:
    """A running redis-server that keeps nothing on disk; its port."""
    if why_not := why_no_redis():
        raise UserError(why_not)
    with tempfile.TemporaryDirectory(prefix="deconvoy-redis-") as name:
        folder, port = Path(name), free_port()
        command = ["redis-server", "--bind", "127.0.0.1", "--port", str(port), "--dir", name]
        command += ["--save", "", "--appendonly", "no", "--daemonize", "no"]
        command += ["--logfile", str(folder / "log")]
        with Child(command, clean_environment(), folder / "errors") as child:
            wait_until_accepts(child, port)
            yield str(port)


def wait_until_accepts(child: Child, port: int) -> None:
    """Raises RunFailed when the process ends, or does not listen in time."""
    deadline = time.monotonic() + START_PATIENCE_S
    while True:
        child.check()
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise child.failed(f"not listening after {START_PATIENCE_S:.0f} s") from None
            time.sleep(0.02)


def postgres_programs() -> Path | None:
    """The folder of `initdb` and its like: of the newest version, on Debian."""
    found = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    newest = sorted(found, key=lambda folder: float(folder.parent.name))[-1:]
    in_path = shutil.which("initdb")
    return newest[0] if newest else Path(in_path).resolve().parent if in_path else None


def postgres_user() -> str | None:
    """Whom PostgreSQL runs as: it refuses root. None: there is no such user."""
    if os.geteuid() != 0:
        return getpass.getuser()
    try:
        return pwd.getpwnam("postgres").pw_name
    except KeyError:
        return None


def why_no_postgres() -> str | None:
    if postgres_programs() is None:
        return "PostgreSQL's initdb is missing: benchmarks/packages"
    if postgres_user() is None:
        return "PostgreSQL does not run as root, and there is no user `postgres`"
    return None


@contextmanager
def postgres() -> Iterator[str]:
    """A running PostgreSQL cluster with TABLE in it; a connection string."""
    if why_not := why_no_postgres():
        raise UserError(why_not)
    programs, user = postgres_programs(), postgres_user()
    assert programs is not None and user is not None
    # Only root can start a process as somebody else.
    other = user if os.geteuid() == 0 else None
    # In /tmp whatever TMPDIR says: the path of a socket takes at most 107 bytes.
    with tempfile.TemporaryDirectory(prefix="deconvoy-postgres-", dir="/tmp") as name:
        folder = Path(name)
        if other:
            shutil.chown(folder, other, other)
        # Its folder lets nobody else in, so whoever reaches the socket is trusted.
        initdb = [str(programs / "initdb"), "--pgdata", str(folder / "data")]
        initdb += ["--username", "deconvoy", "--auth", "trust", "--no-sync", "--encoding", "UTF8"]
        _run([*initdb, "--no-locale"], other)
        server = [str(programs / "postgres"), "-D", str(folder / "data"), "-k", name]
        server += ["-c", "listen_addresses=", "-c", "fsync=off", "-c", "autovacuum=off"]
        # SIGINT: SIGTERM would wait for the clients.
        ends_at = signal.SIGINT
        environment, errors = clean_environment(), folder / "errors"
        with Child(server, environment, errors, cwd=folder, user=other, ends_at=ends_at) as child:
            psql = [str(programs / "psql"), "-h", name, "-U", "deconvoy", "postgres"]
            _wait_until_answers(child, psql, other)
            _run([*psql, "-q", "-v", "ON_ERROR_STOP=1", "-c", TABLE], other)
            yield f"host={name} user=deconvoy dbname=postgres"


def _wait_until_answers(child: Child, psql: list[str], user: str | None) -> None:
    deadline = time.monotonic() + START_PATIENCE_S
    while True:
        child.check()
        try:
            return _run([*psql, "-q", "-c", "select 1"], user)
        except RunFailed:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def _run(command: list[str], user: str | None) -> None:
    groups: list[int] | None = [] if user else None
    done = finished(command, START_PATIENCE_S, user=user, group=user, extra_groups=groups, cwd="/")
    if done.returncode != 0:
        said = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        raise RunFailed(f"{command[0]}: {said}")
