"""The messaging server: echoes size-prefixed messages while CPU-bound threads count.

Source: slides 12 to 17 and 60 of Beazley's "In Search of the Perfect GIL". Runs on any CPython
from 2.7 on. See README.md in this folder for what each line means.
"""
from __future__ import print_function

import argparse
import json
import socket
import struct
import sys
import threading
import time

clock = getattr(time, "perf_counter", time.time)


def recv_exactly(conn, size):
    data = conn.recv(size)
    while len(data) < size:
        more = conn.recv(size - len(data))
        if not more:
            return b""
        data += more
    return data


def serve(listener):
    while True:
        conn, _ = listener.accept()
        conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while True:
            head = recv_exactly(conn, 4)
            if not head:
                break
            (size,) = struct.unpack("!I", head)
            message = recv_exactly(conn, size)
            conn.sendall(head)
            conn.sendall(message)
        conn.close()


def spin(counts, place):
    n = 0
    while True:
        n += 1
        counts[place] = n


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mode", choices=["thread", "green"], default="thread")
    parser.add_argument("--workers", type=int, default=0, help="CPU-bound threads")
    parser.add_argument("--switch-interval", type=float, help="seconds")
    args = parser.parse_args()
    if args.switch_interval is not None:
        sys.setswitchinterval(args.switch_interval)

    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(16)
    counts = [0] * args.workers
    if args.mode == "green" and sys.version_info < (3, 7):
        print(json.dumps({"lacks": "asyncio as it is from CPython 3.7 on"}))
        sys.exit(3)
    if args.mode == "green":
        # Not for every CPython that this file is for.
        import green

        green.run(listener, counts)
        return

    def start(target, name, *arguments):
        thread = threading.Thread(target=target, name=name, args=arguments)
        thread.daemon = True
        thread.start()

    start(serve, "server", listener)
    for place in range(args.workers):
        start(spin, "spin-%d" % place, counts, place)

    print(json.dumps({"port": listener.getsockname()[1]}))
    sys.stdout.flush()
    # Each line asks for the counts so far; the end of the input ends the program.
    while sys.stdin.readline():
        now = clock()
        print(json.dumps({"at": now, "counts": list(counts)}))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
