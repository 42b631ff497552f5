"""An ASGI application with CPU-bound threads beside the event loop.

uvicorn --factory asgi_app:make_app
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import counting
from answers import answer

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


async def app(scope: Message, receive: Receive, send: Send) -> None:
    assert scope["type"] == "http", "started with --lifespan off"
    body = answer(scope["path"])
    headers = [(b"content-type", b"application/json")]
    headers += [(b"content-length", str(len(body or b"{}")).encode())]
    status = 404 if body is None else 200
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body or b"{}"})


def make_app() -> Callable[[Message, Receive, Send], Awaitable[None]]:
    counting.start()
    return app
