"""The messaging client: one for the servers of all languages.

Sends `--work` messages of `--size` bytes, each with its size in front, waits for the echo, sleeps
`--sleep` seconds, and prints one JSON line: the total in seconds and each message's latency in
nanoseconds, from the first byte sent to the last one received.

With `--limit` it gives up after so many seconds: the latencies are those of the messages that were
answered.
"""

import argparse
import gc
import json
import socket
import struct
import time


def recv_exactly(conn: socket.socket, size: int) -> None:
    while size:
        size -= len(conn.recv(size)) or size + 1


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--work", type=int, default=1000)
    parser.add_argument("--size", type=int, default=8192)
    parser.add_argument("--sleep", type=float, default=0.001)
    parser.add_argument("--limit", type=float, help="seconds, after which it gives up")
    args = parser.parse_args()

    message = struct.pack("!I", args.size) + bytes(args.size)
    conn = socket.create_connection(("127.0.0.1", args.port))
    conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    gc.disable()
    latencies = []
    clock = time.perf_counter_ns
    begun = clock()
    conn.settimeout(args.limit)
    try:
        for _ in range(args.work):
            sent = clock()
            if args.limit:
                conn.settimeout(max(args.limit - (sent - begun) / 1e9, 0.001))
            conn.sendall(message)
            recv_exactly(conn, len(message))
            latencies.append(clock() - sent)
            time.sleep(args.sleep)
    except TimeoutError:
        pass
    total = clock() - begun
    conn.close()
    print(json.dumps({"elapsed_s": total / 1e9, "latency_ns": latencies}))


if __name__ == "__main__":
    main()
