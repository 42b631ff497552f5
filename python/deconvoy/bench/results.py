"""Result files: versioned JSON, whole at every moment."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from deconvoy.errors import UserError
from deconvoy.files import write_whole

# Raised with every change of the layout; `load` brings older files up to it.
VERSION = 2


@dataclass
class Run:
    """One execution. `values` are in the unit that ends their name; lists are single samples."""

    runtime: str
    scenario: str
    workers: int
    order: int
    values: dict[str, Any]
    foreign_cores: float
    quiet: bool
    switch_interval_s: float | None = None
    # Of scenarios that are made of tasks: how these are run, and how large they are.
    mode: str | None = None
    size: int | None = None


@dataclass
class Result:
    """All runs of one call, with the machine they ran on."""

    command: list[str]
    created_unix_s: float
    deconvoy: str
    machine: dict[str, Any]
    settings: dict[str, Any]
    runtimes: dict[str, str]
    runs: list[Run] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    version: int = VERSION

    def save(self, path: Path) -> None:
        """Writes it down, whole; raises OSError when it cannot."""
        write_whole(path, json.dumps(asdict(self)))


def load(path: Path) -> Result:
    """Reads a result file of this or an older version.

    Raises UserError for a file that is none, is damaged, or was written by a newer deconvoy.
    """
    try:
        data = json.loads(path.read_text())
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"{path}: not a result of deconvoy bench, or damaged") from error
    is_result = isinstance(data, dict) and "runs" in data and isinstance(data.get("version"), int)
    if not is_result:
        raise UserError(f"{path}: not a result of deconvoy bench")
    if data["version"] > VERSION:
        raise UserError(
            f"{path}: written by a newer deconvoy (format {data['version']}; "
            f"this one reads up to {VERSION}): update deconvoy"
        )
    data["version"] = VERSION
    try:
        data["runs"] = [Run(**run) for run in data["runs"]]
        return Result(**data)
    except TypeError as error:
        raise UserError(f"{path}: damaged: {error}") from error
