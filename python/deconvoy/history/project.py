"""The project file: what is swept, how it is built, run and read."""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import re
import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from importlib import resources
from pathlib import Path
from typing import Any

from deconvoy.errors import UserError
from deconvoy.history.metric import Expression, Reader, reader_from
from deconvoy.history.values import (
    check_known,
    inside,
    is_count,
    pattern_of,
    share,
    size_of,
    text,
    texts,
    time_of,
    yes_or_no,
)

NAME = "deconvoy.toml"

# Every table, with its keys.
KEYS = {
    "repository": {"path", "kind", "range", "revisions", "touching", "version"},
    "build": {"steps", "folder", "inputs", "keep", "limit", "environment"},
    "benchmark": {"folder", "steps", "command", "threads", "repeats", "limit", "environment"},
    "read": None,
    "metric": {"value", "better", "least", "quiet"},
    "search": {"confidence", "runs", "confirming"},
    "store": {"address", "cache", "size"},
}

# A name in braces; not a shell's variable.
BRACES = re.compile(r"(?<!\$)\{(\w+)\}")

# What a command may have in braces.
FIELDS = ("threads", "revision", "build", "benchmark")

# Of a benchmark's folder these are left out, our store among them.
NOT_OF_A_BENCHMARK = (".*", "__pycache__")

# Variables that builds heed.
HEEDED = ("CC", "CFLAGS", "CPPFLAGS", "CXX", "CXXFLAGS", "LDFLAGS", "MAKEFLAGS", "RUSTFLAGS")


def _heeded() -> dict[str, str]:
    return {name: os.environ[name] for name in HEEDED if name in os.environ}


@dataclass(frozen=True)
class Version:
    """Where a revision says which version it is: the first group of the pattern, in a file."""

    file: str
    pattern: re.Pattern[str]


@dataclass(frozen=True)
class Building:
    """How a revision becomes a build. `inputs`: what the build is made of, as paths in the
    repository; revisions with the same share a build. `keep`: what is kept of it, as patterns;
    everything, if empty."""

    steps: tuple[str, ...]
    folder: str = "."
    inputs: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    limit_s: float = 1800.0
    environment: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Benchmark:
    """What is run on a build, with each number of threads. `folder`: the benchmark's own files,
    beside the project file, copied into each build; `steps` build it there."""

    command: str
    threads: tuple[int, ...] = (1, 2)
    repeats: int = 5
    limit_s: float = 600.0
    folder: Path | None = None
    steps: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Project:
    """A project file, checked."""

    file: Path
    repository: str
    kind: str | None
    range: str | None
    revisions: tuple[str, ...]
    touching: str | None
    version: Version | None
    build: Building
    benchmark: Benchmark
    readers: dict[str, Reader]
    metric: Expression
    better: str
    least: float
    quiet: bool = True
    search: dict[str, Any] = field(default_factory=dict)
    store: str | None = None
    cache: Path | None = None
    cache_bytes: int = 20 * 2**30
    # What compilers and make take from the environment makes other builds, too.
    heeded: Mapping[str, str] = field(default_factory=_heeded)

    @property
    def folder(self) -> Path:
        return self.file.parent

    def recipe(self) -> str:
        """Names how a build is made: what changes it makes other builds.

        Raises UserError when a file of the benchmark's cannot be read.
        """
        try:
            own = [
                (str(path.relative_to(folder)), path.stat().st_mode & 0o111, _digest(path))
                for folder in filter(None, [self.benchmark.folder])
                for path in files_of(folder)
            ]
        except OSError as error:
            raise UserError(f"benchmark.folder: {error.filename}: {error.strerror}") from None
        build = self.build
        parts = [build.steps, build.folder, build.keep, build.environment, self.benchmark.steps]
        return short_hash([*parts, own, sorted(self.heeded.items())])

    @property
    def names_revisions(self) -> bool:
        """Whether a build has the revision's name in it: then no two share one."""
        values = (value for _, value in self.build.environment)
        told = (*self.build.steps, *self.benchmark.steps, *values)
        return any("{revision}" in one for one in told)

    def measure(self) -> str:
        """Names how a build is run and read: what changes it makes other runs."""
        benchmark = self.benchmark
        readers = {name: one.told for name, one in self.readers.items()}
        return short_hash([self.recipe(), benchmark.command, benchmark.environment, readers])


def files_of(folder: Path) -> list[Path]:
    """The files of a benchmark, but for what is none of its own."""
    return [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        and not any(
            fnmatch(part, pattern)
            for part in path.relative_to(folder).parts
            for pattern in NOT_OF_A_BENCHMARK
        )
    ]


def short_hash(of: Any) -> str:
    return hashlib.sha256(json.dumps(of, sort_keys=True).encode()).hexdigest()[:16]


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def template(of: str | None = None) -> str:
    """The project file that `init` writes. `of`: a range that there is, in place of its own."""
    text = resources.files("deconvoy").joinpath("data", "history", NAME).read_text()

    def own(found: re.Match[str]) -> str:
        return f'range = "{of}"'.ljust(len(found[0]))

    return text if of is None else re.sub(r'^range = "[^"]*" *', own, text, flags=re.MULTILINE)


def load(path: Path) -> Project:
    """The project of a file. Raises UserError when something in it is missing or wrong."""
    try:
        text = path.read_text()
    except FileNotFoundError:
        raise UserError(
            f"there is no {path}: `deconvoy history init` writes one to fill in"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read: {error}") from None
    try:
        return parse(tomllib.loads(text), path.absolute())
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path}: {error}") from None
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def parse(data: Mapping[str, Any], file: Path, *, has_folder: bool = True) -> Project:
    """`has_folder`: whether the benchmark's folder is beside the file. Raises UserError."""
    check_known(data, KEYS, "")
    tables: dict[str, dict[str, Any]] = {}
    for name, keys in KEYS.items():
        found = data.get(name, {})
        if not isinstance(found, dict):
            raise UserError(f"{name} is a table: [{name}]")
        if keys is not None:
            check_known(found, keys, f"{name}.")
        tables[name] = found
    repository, metric, store = tables["repository"], tables["metric"], tables["store"]
    readers = {name: reader_from(name, told) for name, told in tables["read"].items()}
    if not readers:
        raise UserError("[read] says how numbers are read: time = { json = 'elapsed_s' }")
    benchmark = _benchmark(tables["benchmark"], file.parent if has_folder else None)
    only = next(iter(readers))
    default = only if len(benchmark.threads) == 1 else f"{only}[{max(benchmark.threads)}]"
    expression = Expression(text(metric, "value", "metric", default))
    expression.check(set(readers), benchmark.threads)
    better = text(metric, "better", "metric", "lower")
    if better not in ("lower", "higher"):
        raise UserError(f"metric.better is lower or higher, not {better!r}")
    ways = [name for name in ("range", "revisions") if name in repository]
    if len(ways) != 1:
        raise UserError("repository.range or repository.revisions says which: range = 'A..B'")
    return Project(
        file=file,
        repository=text(repository, "path", "repository", "."),
        kind=_kind(repository),
        range=text(repository, "range", "repository", None),
        revisions=texts(repository, "revisions", "repository"),
        touching=inside(text(repository, "touching", "repository", None), "repository.touching"),
        version=_version(repository.get("version")),
        build=_building(tables["build"]),
        benchmark=benchmark,
        readers=readers,
        metric=expression,
        better=better,
        least=share(metric.get("least", "5%")),
        quiet=yes_or_no(metric, "quiet", "metric", True),
        search=_search(tables["search"]),
        store=_address(store, file.parent),
        cache=_optional_path(store, file.parent),
        cache_bytes=size_of(str(store.get("size", "20G"))),
    )


def _kind(table: Mapping[str, Any]) -> str | None:
    kind: str | None = text(table, "kind", "repository", None)
    if kind not in (None, "git", "fossil"):
        raise UserError(f"repository.kind is git or fossil, not {kind!r}")
    return kind


def _version(told: Any) -> Version | None:
    if told is None:
        return None
    if not isinstance(told, dict):
        raise UserError("repository.version is { file = …, pattern = … }")
    check_known(told, {"file", "pattern"}, "repository.version.")
    pattern = pattern_of(text(told, "pattern", "repository.version"), "repository.version.pattern")
    where = "repository.version.file"
    return Version(inside(text(told, "file", "repository.version"), where), pattern)


def _environment(table: Mapping[str, Any], where: str) -> tuple[tuple[str, str], ...]:
    found = table.get("environment", {})
    if not isinstance(found, dict):
        raise UserError(f"{where}.environment is a table of texts, not {found!r}")
    return tuple(sorted((name, str(value)) for name, value in found.items()))


def _building(table: Mapping[str, Any]) -> Building:
    for step in texts(table, "steps", "build"):
        check_fields(step, "build.steps", ("revision", "build"))
    return Building(
        steps=texts(table, "steps", "build"),
        folder=inside(text(table, "folder", "build", "."), "build.folder"),
        inputs=tuple(inside(one, "build.inputs") for one in texts(table, "inputs", "build")),
        keep=texts(table, "keep", "build"),
        limit_s=time_of(table.get("limit", "30min"), "build.limit"),
        environment=_environment(table, "build"),
    )


def _benchmark(table: Mapping[str, Any], beside: Path | None) -> Benchmark:
    command: str = text(table, "command", "benchmark")
    check_fields(command, "benchmark.command", FIELDS)
    try:
        shlex.split(command)
    except ValueError as error:
        raise UserError(f"benchmark.command: {error}: {command!r}") from None
    for step in texts(table, "steps", "benchmark"):
        check_fields(step, "benchmark.steps", ("revision", "build", "benchmark"))
    threads = table.get("threads", [1, 2])
    if isinstance(threads, int):
        threads = [threads]
    if not isinstance(threads, list) or not threads or not all(map(is_count, threads)):
        raise UserError(f"benchmark.threads is a list of numbers from 1 on, not {threads!r}")
    if len(threads) > 1 and "{threads}" not in command:
        raise UserError("benchmark.command has no {threads}: put it where their number goes")
    repeats = table.get("repeats", 5)
    if not is_count(repeats):
        raise UserError(f"benchmark.repeats is a number from 1 on, not {repeats!r}")
    folder = text(table, "folder", "benchmark", None)
    place = None if folder is None or beside is None else beside / folder
    if place is not None and not place.is_dir():
        raise UserError(f"benchmark.folder: there is no folder {folder} beside the project file")
    return Benchmark(
        command=command,
        threads=tuple(sorted(set(threads))),
        repeats=repeats,
        limit_s=time_of(table.get("limit", "10min"), "benchmark.limit"),
        folder=place,
        steps=texts(table, "steps", "benchmark"),
        environment=_environment(table, "benchmark"),
    )


def check_fields(told: str, where: str, known: tuple[str, ...]) -> None:
    for name in BRACES.findall(told):
        # Others may be a shell's, or awk's.
        if name not in known and difflib.get_close_matches(name, known, 1):
            there = ", ".join(f"{{{one}}}" for one in known)
            raise UserError(f"{where}: nobody knows {{{name}}}: there are {there}")


def filled(told: str, fields: Mapping[str, object]) -> str:
    """A command with what stands for its braces; other braces stay."""
    return BRACES.sub(lambda m: str(fields[m[1]]) if m[1] in fields else m[0], told)


def _search(table: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(table)
    confidence = found.get("confidence", 0.95)
    if not isinstance(confidence, float) or not 0.5 < confidence < 1:
        raise UserError(f"search.confidence is between 0.5 and 1, not {confidence!r}")
    for name in ("runs", "confirming"):
        if name in found and not is_count(found[name]):
            raise UserError(f"search.{name} is a number from 1 on, not {found[name]!r}")
    if found.get("confirming", 3) < 3:
        raise UserError("search.confirming is at least 3: fewer rounds confirm nothing")
    return found


def _address(table: Mapping[str, Any], beside: Path) -> str | None:
    """A path is as seen from the project file."""
    told: str | None = text(table, "address", "store", None)
    if told is None or "://" in told:
        return told
    return str(beside / Path(told).expanduser())


def _optional_path(table: Mapping[str, Any], beside: Path) -> Path | None:
    told = text(table, "cache", "store", None)
    return None if told is None else beside / Path(told).expanduser()
