"""A WSGI application with CPU-bound threads beside it.

gunicorn --worker-class gthread --threads 4 'wsgi_app:make_app()'

The application is made in the worker process, so the CPU-bound threads are there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import counting
from answers import answer

Respond = Callable[[str, "list[tuple[str, str]]"], object]


def app(environ: dict[str, Any], respond: Respond) -> Iterable[bytes]:
    body = answer(environ["PATH_INFO"])
    status = "404 Not Found" if body is None else "200 OK"
    body = body or b"{}"
    respond(status, [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
    return [body]


def make_app() -> Callable[[dict[str, Any], Respond], Iterable[bytes]]:
    counting.start()
    return app
