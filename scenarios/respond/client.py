"""The client of respond's second form: one for the programs of all languages.

Opens `--workers` connections, waits until all of them are open and ready, asks on each for a
response as fast as that goes, reads and checks them all, and prints one JSON line. With `--limit`
it fails if that takes more seconds. See README.md in this folder.
"""

import argparse
import errno
import gc
import json
import resource
import select
import socket
import sys
import time

RESPONSE = 512

READY = b"ready\n"

# So many connections at most are open and not yet ready: no server's backlog overflows.
AT_A_TIME = 256


class Wrong(Exception):
    """The server does not do what it should; the text says what it did."""


class Client:
    """The connections to a server, each with its number, and what has come over it."""

    def __init__(self, port: int, count: int, limit_s: float | None) -> None:
        self.port = port
        self.count = count
        self.limit_s = limit_s
        self.begun_s = time.monotonic()
        self.poll = select.epoll(count)
        self.conns: list[socket.socket] = []
        self.numbers: dict[int, int] = {}
        self.said = [b""] * count

    def events(self) -> list[tuple[int, int]]:
        """What has happened: at least one thing."""
        left_s = None
        if self.limit_s is not None:
            left_s = max(self.begun_s + self.limit_s - time.monotonic(), 0)
        events = self.poll.poll(left_s)
        if left_s == 0 or not events:
            raise Wrong(f"not done after {self.limit_s:g} s")
        return events

    def connect(self) -> None:
        conn = socket.socket()
        conn.setblocking(False)
        if (error := conn.connect_ex(("127.0.0.1", self.port))) not in (0, errno.EINPROGRESS):
            raise OSError(error, f"connection {len(self.conns)}: {errno.errorcode[error]}")
        # Told once of what has come: all of it is read then, since less comes than is read at most.
        self.poll.register(conn, select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET)
        self.numbers[conn.fileno()] = len(self.conns)
        self.conns.append(conn)

    def open(self) -> None:
        """Until all connections are open and ready."""
        ready = 0
        while ready < self.count:
            while len(self.conns) < min(ready + AT_A_TIME, self.count):
                self.connect()
            for descriptor, _ in self.events():
                number = self.numbers[descriptor]
                data = self.conns[number].recv(RESPONSE)
                self.said[number] += data
                if not data or not READY.startswith(self.said[number]):
                    raise Wrong(f"connection {number} has ended or is not ready: {data!r}")
                ready += self.said[number] == READY

    def ask(self) -> list[int]:
        """The time of each request."""
        requests = [b"respond %d\n" % number for number in range(self.count)]
        clock = time.monotonic_ns
        asked = []
        for conn, request in zip(self.conns, requests, strict=True):
            asked.append(clock())
            conn.sendall(request)
        return asked

    def hear(self) -> list[int]:
        """The time of each response's last byte. Returns when all connections have ended."""
        self.said = [b""] * self.count
        heard = [0] * self.count
        clock = time.monotonic_ns
        left = self.count
        while left:
            for descriptor, what in self.events():
                number = self.numbers[descriptor]
                conn = self.conns[number]
                if data := conn.recv(2 * RESPONSE):
                    heard[number] = clock()
                    self.said[number] += data
                if what & select.EPOLLRDHUP or not data:
                    conn.close()
                    left -= 1
        return heard

    def check(self) -> None:
        for number, text in enumerate(self.said):
            is_mine = text.startswith(b'<response id="%d" ' % number)
            if len(text) != RESPONSE or not is_mine or not text.endswith(b"</response>\n"):
                raise Wrong(f"response {number} is none: {len(text)} bytes, {text[:60]!r}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--workers", type=int, required=True, help="connections")
    parser.add_argument("--limit", type=float, help="seconds, after which it fails")
    args = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    gc.disable()
    client = Client(args.port, args.workers, args.limit)
    try:
        client.open()
        open_s = time.monotonic() - client.begun_s
        asked = client.ask()
        heard = client.hear()
        client.check()
    except (OSError, Wrong) as error:
        sys.exit(f"client.py: {error}")
    latencies = [late - early for early, late in zip(asked, heard, strict=True)]
    said = {
        "open_s": open_s,
        "elapsed_s": (max(heard) - asked[0]) / 1e9,
        "latency_ns": latencies,
        "open": len(client.conns),
    }
    print(json.dumps(said))


if __name__ == "__main__":
    main()
