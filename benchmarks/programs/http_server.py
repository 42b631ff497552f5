"""The standard library's ThreadingHTTPServer with CPU-bound threads beside it.

http_server.py PORT

Left as it comes: HTTP/1.0, so a connection and a thread for each request. Ends at SIGTERM with
status 0.
"""

from __future__ import annotations

import signal
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import counting
from answers import answer


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = answer(self.path)
        self.send_response(404 if body is None else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body or b"{}")))
        self.end_headers()
        self.wfile.write(body or b"{}")

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: a line a request would measure the terminal."""


class Server(ThreadingHTTPServer):
    # Five, as it comes, are not enough for eight connections at once: the rest would wait a second.
    request_queue_size = 128


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with Server(("127.0.0.1", int(sys.argv[1])), Handler) as server:
        counting.start()
        server.serve_forever()


if __name__ == "__main__":
    main()
