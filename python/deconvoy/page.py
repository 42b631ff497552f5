"""The analysis of traces as one page: a timeline, the threads, the findings."""

from __future__ import annotations

import base64
import gzip
import html
import json
import re
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from deconvoy._native import timeline
from deconvoy.errors import UserError
from deconvoy.files import write_whole


def _part(name: str) -> str:
    return resources.files("deconvoy").joinpath("data", "page", name).read_text()


def _as_script(data: Any) -> str:
    """JSON that can stand in a page: nothing in it ends the element around it."""
    return json.dumps(data).replace("<", "\\u003c")


def render(processes: Sequence[tuple[Path, dict[str, Any]]]) -> str:
    """The page of some traces, each with its analysis."""
    first = processes[0][1]["process"]
    title = " ".join(first["command"]) or f"{first['runtime']} {first['policy']}"
    data = []
    for number, (path, _) in enumerate(processes):
        packed = base64.b64encode(gzip.compress(timeline(path), compresslevel=6)).decode()
        data.append(f'<script id="data-{number}" type="text/plain">{packed}</script>')
    report = {"version": 1, "processes": [report for _, report in processes]}
    parts = {
        "__STYLE__": _part("page.css"),
        "__SCRIPT__": "\n".join(_part(name) for name in ("data.js", "draw.js", "view.js")),
        "__TITLE__": html.escape(f"deconvoy: {title}"),
        "__DATA__": "\n".join(data),
        "__REPORT__": _as_script(report),
    }
    # In one pass: what stands in a trace may look like one of these places.
    return re.sub("|".join(parts), lambda place: parts[place[0]], _part("page.html"))


def write(path: Path, text: str) -> None:
    """Writes a page, for everybody to read. Raises UserError when it cannot be written."""
    try:
        write_whole(path, text, mode=0o644)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from None
