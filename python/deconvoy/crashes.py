"""What is said when Rust code panics, which ends the process: a bug of ours."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from deconvoy._native import note_for_crashes


@contextlib.contextmanager
def noted(text: str) -> Iterator[None]:
    """If the calling thread panics meanwhile, `text` is said after the message."""
    note_for_crashes(text)
    try:
        yield
    finally:
        note_for_crashes("")
