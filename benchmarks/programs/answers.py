"""What each of the HTTP servers answers: `/items/N` with a small document, `/count` with how far
the CPU-bound threads are."""

from __future__ import annotations

import json

import counting


def item(number: int) -> bytes:
    """The document of `/items/NUMBER`."""
    return json.dumps({"item": number, "square": number * number}).encode()


def answer(path: str) -> bytes | None:
    """The body for a path; None when there is no such document."""
    if path == "/count":
        return json.dumps(counting.counted()).encode()
    folder, _, name = path.rpartition("/")
    return item(int(name)) if folder == "/items" and name.isdecimal() else None
