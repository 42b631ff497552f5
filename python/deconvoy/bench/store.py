"""Results as they are kept: a file a series, a folder of them as the store."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from deconvoy.bench.results import SUFFIX, Result, load
from deconvoy.errors import UserError

# What tells two machines apart, of their descriptions.
IDENTITY = ("processor", "cores_available", "memory_bytes", "architecture")

# Of results, the older ones too.
SUFFIXES = (SUFFIX, ".json")


def open_result(path: Path) -> Result:
    """A result file, or all of a folder's as one.

    Raises UserError when there is none, or one is damaged.
    """
    if not path.is_dir():
        return load(path)
    several = [load(file) for file in sorted(path.iterdir()) if is_result(file)]
    if not several:
        raise UserError(f"{path}: no result of deconvoy bench in it")
    return pooled(several)


def is_result(path: Path) -> bool:
    """Whether a file of a store is one of ours, as far as its beginning tells."""
    if path.suffix not in SUFFIXES or not path.is_file():
        return False
    with path.open("rb") as file:
        begin = file.read(4096)
    return begin.startswith(b"{") and b'"deconvoy"' in begin and b'"command"' in begin


def pooled(several: list[Result]) -> Result:
    """The runs of all, oldest first; those from another machine than the newest one's have its
    name."""
    in_order = sorted(several, key=lambda one: one.created_unix_s)
    newest = in_order[-1]
    whole = replace(newest, runs=[], skipped={}, failed={}, machines={}, runtimes={})
    for one in in_order:
        elsewhere = "" if identity(one.machine) == identity(newest.machine) else label(one.machine)
        if elsewhere:
            whole.machines[elsewhere] = one.machine
        whole.machines |= one.machines
        whole.runs += [replace(run, machine=run.machine or elsewhere) for run in one.runs]
        whole.runtimes |= one.runtimes
        whole.skipped |= one.skipped
        whole.failed |= one.failed
    return whole


def identity(machine: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(machine.get(name) for name in IDENTITY)


def label(machine: dict[str, Any]) -> str:
    """A short name of a machine: `AMD EPYC 7B13, 4 cores`."""
    return f"{machine.get('processor')}, {machine.get('cores_available')} cores"
