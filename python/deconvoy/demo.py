"""A small threaded program with a convoy in it: `deconvoy trace -- python -m deconvoy.demo`.

One thread echoes messages of a forked client, as slides 12 to 17 of Beazley's "In Search of the
Perfect GIL" have it; another one computes. The answer to each message waits for the one that
computes to give the lock up.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time

MESSAGES = 200
# Not counted: meanwhile the system finds a core for each new thread and process.
WARM_UP = 50
SIZE = 8192
PAUSE_S = 0.001


def receive(conn: socket.socket) -> bytes:
    """One message; short only if the other side has gone."""
    parts = bytearray()
    while len(parts) < SIZE and (part := conn.recv(SIZE - len(parts))):
        parts += part
    return bytes(parts)


def echo(conn: socket.socket) -> None:
    while message := receive(conn):
        conn.sendall(message)


def compute(is_over: threading.Event, counts: list[int]) -> None:
    while not is_over.is_set():
        counts[0] += 1


def ask(conn: socket.socket) -> list[float]:
    """The client: how long each answer took, in milliseconds, sorted."""
    taken = []
    for _ in range(WARM_UP + MESSAGES):
        sent = time.perf_counter()
        conn.sendall(bytes(SIZE))
        receive(conn)
        taken.append((time.perf_counter() - sent) * 1e3)
        time.sleep(PAUSE_S)
    return sorted(taken[WARM_UP:])


def main() -> None:
    ours, theirs = socket.socketpair()
    # The client is another process, so that it has a GIL of its own.
    client = os.fork()
    if client == 0:
        ours.close()
        taken = ask(theirs)
        middle, late = taken[MESSAGES // 2], taken[MESSAGES * 99 // 100]
        print(f"{MESSAGES} messages of {SIZE} bytes: median {middle:.2f} ms, 99 % in {late:.2f} ms")
        sys.stdout.flush()
        os._exit(0)
    theirs.close()
    is_over = threading.Event()
    counts = [0]
    begun = time.perf_counter()
    computing = threading.Thread(target=compute, args=(is_over, counts), name="compute")
    serving = threading.Thread(target=echo, args=(ours,), name="echo")
    computing.start()
    serving.start()
    serving.join()
    is_over.set()
    computing.join()
    rate = counts[0] / (time.perf_counter() - begun)
    os.waitpid(client, 0)
    print(f"meanwhile a thread counted {rate / 1e6:.1f} million a second")


if __name__ == "__main__":
    main()
