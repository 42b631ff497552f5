"""What was built and measured, kept as it comes: SQLite beside the project file, or PostgreSQL.

Rows are only added (but for failures that are to be tried again). What is left to do follows from
what is there, so a kill at any point loses at most what was under way. Builds and runs are named by
what they were made of (`Project.recipe`, `Project.measure`, the inputs of a revision), not by the
command that made them.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import sqlalchemy as sql

from deconvoy.bench.store import identity
from deconvoy.errors import UserError

VERSION = 1

# How a transaction keeps others of its kind out; the number is ours alone.
ALONE = {
    "sqlite": "BEGIN IMMEDIATE",
    "postgresql": "SELECT pg_advisory_xact_lock(6463656776)",
}

metadata = sql.MetaData()

about = sql.Table(
    "deconvoy_history",
    metadata,
    sql.Column("version", sql.Integer, primary_key=True),
)

machines = sql.Table(
    "machines",
    metadata,
    sql.Column("id", sql.Integer, primary_key=True),
    sql.Column("identity", sql.String, nullable=False, unique=True),
    sql.Column("about", sql.JSON, nullable=False),
)

# How each build ended: `step` and `failure` are null if well.
builds = sql.Table(
    "builds",
    metadata,
    sql.Column("id", sql.Integer, primary_key=True),
    sql.Column("key", sql.String, nullable=False, index=True),
    sql.Column("recipe", sql.String, nullable=False),
    sql.Column("revision", sql.String, nullable=False),
    sql.Column("machine", sql.ForeignKey("machines.id"), nullable=False),
    sql.Column("at_unix_s", sql.Float, nullable=False),
    sql.Column("seconds", sql.Float, nullable=False),
    sql.Column("step", sql.String),
    sql.Column("failure", sql.String),
)

# Runs of one round belong together: a metric may be made of several. `foreign_cores`: what other
# programs used meanwhile; `counts`: whether it was little enough.
runs = sql.Table(
    "runs",
    metadata,
    sql.Column("id", sql.Integer, primary_key=True),
    sql.Column("measure", sql.String, nullable=False, index=True),
    sql.Column("key", sql.String, nullable=False),
    sql.Column("revision", sql.String, nullable=False),
    sql.Column("machine", sql.ForeignKey("machines.id"), nullable=False),
    sql.Column("round", sql.String, nullable=False),
    sql.Column("threads", sql.Integer, nullable=False),
    sql.Column("at_unix_s", sql.Float, nullable=False),
    sql.Column("foreign_cores", sql.Float, nullable=False),
    sql.Column("counts", sql.Boolean, nullable=False),
    sql.Column("values", sql.JSON),
    sql.Column("step", sql.String),
    sql.Column("failure", sql.String),
)


@dataclass(frozen=True)
class Failure:
    """Why a revision has no number: in which step, how, with the last lines."""

    step: str
    text: str

    def __str__(self) -> str:
        return f"{self.step}: {self.text}"


@dataclass(frozen=True)
class Round:
    """The runs of one round of a build, by number of threads, on a machine."""

    name: str
    machine: int
    values: dict[int, dict[str, float]]
    at_unix_s: float


class Store:
    """The store at an address: a file's path, or one of SQLAlchemy's.

    Raises UserError when it cannot be opened, or a newer deconvoy has made it.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self._machines: dict[str, int] = {}
        self._is_fixed = "://" not in address and is_read_only(Path(address))
        try:
            # A path may have signs that mean something in an address.
            where = sql.URL.create("sqlite", database=address)
            if self._is_fixed:
                fixed = f"file:{quote(address)}"
                where = sql.URL.create(
                    "sqlite", database=fixed, query={"mode": "ro", "immutable": "1", "uri": "true"}
                )
            self._engine = sql.create_engine(
                address if "://" in address else where,
                json_serializer=lambda value: json.dumps(value, allow_nan=False),
            )
        except (sql.exc.ArgumentError, ModuleNotFoundError) as error:
            raise UserError(f"store.address {shown(address)!r}: {error}{_mend(address)}") from None
        if self._engine.dialect.name not in ALONE:
            raise UserError(
                f"store.address {shown(address)!r}: a path, for SQLite, or an address of PostgreSQL"
            )
        if self._engine.dialect.name == "sqlite" and not self._is_fixed:
            sql.event.listen(self._engine, "connect", _as_wanted)
        try:
            with self._engine.begin() as connection:
                if not self._is_fixed:
                    # Of two that begin at a time the second finds what the first has made.
                    connection.exec_driver_sql(ALONE[self._engine.dialect.name])
                    metadata.create_all(connection)
                found = connection.execute(sql.select(about.c.version)).scalar()
                if found is None:
                    connection.execute(about.insert().values(version=VERSION))
        except sql.exc.DBAPIError as error:
            said = " ".join(str(error.orig).split())
            raise UserError(f"store.address {shown(address)!r}: {said}{_mend(address)}") from None
        if found is not None and found > VERSION:
            raise UserError(
                f"{shown(address)} was made by a newer deconvoy (version {found} of the store, "
                f"this one knows {VERSION}): update deconvoy, or name another store"
            )

    def close(self) -> None:
        self._engine.dispose()

    def machine(self, told: Mapping[str, Any]) -> int:
        """The number of a machine, which it keeps; 0 in a store that is only read."""
        if self._is_fixed:
            return 0
        name = json.dumps(identity(dict(told)))
        if name not in self._machines:
            query = sql.select(machines.c.id).where(machines.c.identity == name)
            with self._engine.begin() as connection:
                connection.exec_driver_sql(ALONE[self._engine.dialect.name])
                found = connection.execute(query).scalar()
                if found is None:
                    connection.execute(machines.insert().values(identity=name, about=dict(told)))
                    found = connection.execute(query).scalar_one()
            self._machines[name] = int(found)
        return self._machines[name]

    def built(
        self,
        key: str,
        recipe: str,
        revision: str,
        machine: int,
        seconds: float,
        failure: Failure | None,
    ) -> None:
        """A build has ended."""
        with self._engine.begin() as connection:
            connection.execute(
                builds.insert().values(
                    key=key,
                    recipe=recipe,
                    revision=revision,
                    machine=machine,
                    at_unix_s=time.time(),
                    seconds=seconds,
                    step=None if failure is None else failure.step,
                    failure=None if failure is None else failure.text,
                )
            )

    def ran(self, **told: Any) -> None:
        """A run has ended; see `runs`."""
        with self._engine.begin() as connection:
            connection.execute(runs.insert().values(**told, at_unix_s=time.time()))

    def all_of(self, table: str) -> list[dict[str, Any]]:
        """All rows of a table, as they are, but for the number of each and its machine's."""
        wanted = {"builds": builds, "runs": runs}[table]
        with self._engine.connect() as connection:
            rows = connection.execute(sql.select(wanted).order_by(wanted.c.id)).mappings()
            return [
                {name: value for name, value in row.items() if name not in ("id", "machine")}
                for row in rows
            ]

    def add(self, table: str, row: Mapping[str, Any], machine: int) -> None:
        """A row of another store, which was made on a machine."""
        wanted = {"builds": builds, "runs": runs}[table]
        with self._engine.begin() as connection:
            connection.execute(wanted.insert().values(**row, machine=machine))

    def seconds_to_build(self, recipe: str) -> list[float]:
        """Of each build that went well."""
        query = sql.select(builds.c.seconds).where(builds.c.recipe == recipe)
        query = query.where(builds.c.failure.is_(None))
        with self._engine.connect() as connection:
            return [float(row.seconds) for row in connection.execute(query)]

    def built_keys(self, recipe: str) -> set[str]:
        """Keys of the builds that ended well."""
        query = sql.select(builds.c.key).where(builds.c.recipe == recipe)
        with self._engine.connect() as connection:
            return {row.key for row in connection.execute(query.where(builds.c.failure.is_(None)))}

    def all_machines(self) -> set[int]:
        with self._engine.connect() as connection:
            return {row.id for row in connection.execute(sql.select(machines.c.id))}

    def failures(self, recipe: str, measure: str, here: Collection[int]) -> dict[str, Failure]:
        """What cannot be measured on some machines, by the key of its build: another one may have
        what these lack. What went well later is none."""
        found: dict[str, Failure] = {}
        of_runs: dict[str, Failure] = {}
        with self._engine.connect() as connection:
            query = sql.select(builds).where(builds.c.recipe == recipe).order_by(builds.c.id)
            query = query.where(builds.c.machine.in_(here))
            for row in connection.execute(query):
                found.pop(row.key, None)
                if row.failure is not None:
                    found[row.key] = Failure(row.step, row.failure)
            query = sql.select(runs).where(runs.c.measure == measure).order_by(runs.c.id)
            query = query.where(runs.c.machine.in_(here))
            for row in connection.execute(query):
                if row.failure is not None:
                    of_runs[row.key] = Failure(row.step, row.failure)
                elif row.counts:
                    of_runs.pop(row.key, None)
        return of_runs | found

    def forget_failures(self, recipe: str, measure: str, here: Collection[int]) -> None:
        """Those on some machines, so that they are tried again."""
        with self._engine.begin() as connection:
            bad = (builds.c.recipe == recipe) & builds.c.failure.is_not(None)
            connection.execute(builds.delete().where(bad & builds.c.machine.in_(here)))
            bad = (runs.c.measure == measure) & runs.c.failure.is_not(None)
            connection.execute(runs.delete().where(bad & runs.c.machine.in_(here)))

    def rounds(
        self, measure: str, threads: Iterable[int], most_foreign: float | None = None
    ) -> dict[str, list[Round]]:
        """All rounds that are whole and count, by the key of their build, oldest first; only those
        beside which other programs used less than so many cores."""
        wanted = set(threads)
        query = sql.select(runs).where(runs.c.measure == measure, runs.c.counts)
        query = query.where(runs.c.failure.is_(None)).order_by(runs.c.id)
        if most_foreign is not None:
            query = query.where(runs.c.foreign_cores < most_foreign)
        parts: dict[tuple[str, str], dict[int, Any]] = defaultdict(dict)
        with self._engine.connect() as connection:
            for row in connection.execute(query):
                parts[row.key, row.round][row.threads] = row
        found: dict[str, list[Round]] = defaultdict(list)
        for (key, name), rows in parts.items():
            if not wanted <= rows.keys():
                continue
            values = {count: dict(rows[count].values) for count in sorted(wanted)}
            last = max(row.at_unix_s for row in rows.values())
            found[key].append(Round(name, rows[min(wanted)].machine, values, last))
        return found


def _as_wanted(connection: Any, _: object) -> None:
    """A file that another process may read meanwhile, and that a kill leaves whole."""
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA busy_timeout=30000")
    cursor.close()


def is_read_only(file: Path) -> bool:
    """Whether a store is there, and only to be read."""
    return file.exists() and not (os.access(file, os.W_OK) and os.access(file.parent, os.W_OK))


def shown(address: str) -> str:
    """Without a password."""
    return re.sub(r"(://[^:@/]*):[^@/]*@", r"\1:***@", address)


def _mend(address: str) -> str:
    if address.startswith("postgresql"):
        return (
            "; PostgreSQL: postgresql+psycopg://USER@HOST/DATABASE, and "
            "pip install 'deconvoy[postgresql]'"
        )
    return ""


def default_place(folder: Path) -> str:
    """The store beside a project file, in a folder that Git does not see."""
    place = folder / ".deconvoy"
    try:
        place.mkdir(exist_ok=True)
        ignored = place / ".gitignore"
        if not ignored.exists():
            ignored.write_text("*\n")
    except OSError as error:
        raise UserError(f"{place}: {error.strerror}") from None
    return str(place / "history.db")
