"""The analysis of traces as one page: a timeline, the threads, the findings."""

from __future__ import annotations

import base64
import gzip
import html
import json
import os
import tempfile
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from deconvoy._native import timeline
from deconvoy.errors import UserError


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
    page = _part("page.html")
    # The data last: whatever stands in a trace is not looked at again.
    for place, text in (
        ("__STYLE__", _part("page.css")),
        ("__SCRIPT__", _part("page.js")),
        ("__TITLE__", html.escape(f"deconvoy: {title}")),
        ("__DATA__", "\n".join(data)),
        ("__REPORT__", _as_script(report)),
    ):
        page = page.replace(place, text, 1)
    return page


def write(path: Path, text: str) -> None:
    """Writes a page to `path`, whole or not at all.

    Raises UserError when it cannot be written.
    """
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
        try:
            with os.fdopen(handle, "w") as file:
                file.write(text)
            os.chmod(name, 0o644)
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from None
