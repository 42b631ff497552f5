"""Trace files in a folder, and their analyses."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deconvoy._native import TraceError, report_json
from deconvoy.errors import UserError

# As crates/shim/src/tracing.rs names them: process, microseconds since 1970; with what `bench` puts
# before it.
NAME = re.compile(r"(?:.*-)?(\d+)-(\d+)\.trace")

NO_TRACES = (
    "no process had a lock that deconvoy knows: it was no CPython from 3.8 on and no Ruby from 2.6 "
    "on, or one without a GIL, or its environment was cleared; "
    "`deconvoy doctor -- COMMAND` says more"
)


@dataclass(frozen=True)
class TraceFile:
    path: Path
    # None: the file has another name.
    pid: int | None


def find_traces(path: Path, process: int | None = None) -> list[TraceFile]:
    """The trace at `path`, or those in the folder there, in the order in which they began.

    Raises:
        UserError: there is none, or none of that process.
    """
    if path.is_dir():
        named = [
            (found, entry) for entry in path.iterdir() if (found := NAME.fullmatch(entry.name))
        ]
        named.sort(key=lambda pair: (int(pair[0][2]), int(pair[0][1])))
        traces = [TraceFile(entry, int(name[1])) for name, entry in named]
        if not traces:
            raise UserError(f"{path} has no traces: name a folder that `deconvoy trace` has made")
    elif path.is_file():
        name = NAME.fullmatch(path.name)
        traces = [TraceFile(path, int(name[1]) if name else None)]
    elif path.exists():
        raise UserError(f"{path}: neither a trace file nor a folder")
    else:
        raise UserError(f"{path}: no such file or folder")
    if process is not None:
        traces = [trace for trace in traces if trace.pid == process]
        if not traces:
            raise UserError(f"{path} has no trace of process {process}")
    return traces


def load(trace: Path) -> dict[str, Any]:
    """The analysis of one trace; its shape: `Report` in crates/trace/src/analyse.rs.

    Raises:
        UserError: the file is no readable trace.
    """
    try:
        report: dict[str, Any] = json.loads(report_json(trace))
    except TraceError as error:
        raise UserError(str(error)) from None
    return report


def load_all(
    traces: Sequence[TraceFile],
) -> tuple[list[tuple[TraceFile, dict[str, Any]]], list[str]]:
    """The analyses of those that can be read, and why the others cannot."""
    loaded, unreadable = [], []
    for trace in traces:
        try:
            loaded.append((trace, load(trace.path)))
        except UserError as error:
            unreadable.append(str(error))
    return loaded, unreadable
