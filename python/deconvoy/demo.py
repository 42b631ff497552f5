"""A small threaded program with a convoy in it: `deconvoy trace -- python -m deconvoy.demo`.

One thread echoes messages of a forked client, as slides 12 to 17 of Beazley's "In Search of the
Perfect GIL" have it; another one computes. The answer to each message waits for the one that
computes to give the lock up.
"""

import os
import socket
import threading
import time

MESSAGES = 200
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


def compute(is_over: threading.Event) -> None:
    count = 0
    while not is_over.is_set():
        count += 1


def main() -> None:
    ours, theirs = socket.socketpair()
    # The client is another process, so that it has a GIL of its own.
    client = os.fork()
    if client == 0:
        ours.close()
        for _ in range(MESSAGES):
            theirs.sendall(bytes(SIZE))
            receive(theirs)
            time.sleep(PAUSE_S)
        os._exit(0)
    theirs.close()
    is_over = threading.Event()
    computing = threading.Thread(target=compute, args=(is_over,), name="compute")
    serving = threading.Thread(target=echo, args=(ours,), name="echo")
    computing.start()
    serving.start()
    serving.join()
    is_over.set()
    computing.join()
    os.waitpid(client, 0)
    print(f"{MESSAGES} messages of {SIZE} bytes were echoed beside a thread that computes")


if __name__ == "__main__":
    main()
