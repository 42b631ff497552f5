"""The second form of respond.py: requests of a client's, over sockets. See README.md in this
folder.
"""
import asyncio
import json
import resource
import socket
import time


class Sockets:
    """A connection for each request. `write`: writes the response to a descriptor."""

    def __init__(self, write, is_green, wait_s):
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        self.write = write
        self.wait_s = wait_s
        self.first_s = None
        self.listener = socket.socket()
        self.listener.bind(("127.0.0.1", 0))
        # The kernel makes of it the most that it has.
        self.listener.listen(2**31 - 1)
        self.listener.setblocking(not is_green)
        print(json.dumps({"port": self.listener.getsockname()[1]}), flush=True)

    def begin(self, id):
        conn, _ = self.listener.accept()
        self.first_s = self.first_s or time.monotonic()
        return (conn,)

    async def begin_green(self, id):
        conn, _ = await asyncio.get_running_loop().sock_accept(self.listener)
        self.first_s = self.first_s or time.monotonic()
        return (conn,)

    def respond(self, conn):
        with conn:
            conn.sendall(b"ready\n")
            line = b""
            while not line.endswith(b"\n"):
                line += conn.recv(32) or self.gone()
            begun_ns = time.monotonic_ns()
            time.sleep(self.wait_s)
            self.write(conn.fileno(), int(line.split()[1]), begun_ns)

    async def respond_green(self, conn):
        with conn:
            conn.sendall(b"ready\n")
            line = b""
            while not line.endswith(b"\n"):
                line += await asyncio.get_running_loop().sock_recv(conn, 32) or self.gone()
            begun_ns = time.monotonic_ns()
            await asyncio.sleep(self.wait_s)
            self.write(conn.fileno(), int(line.split()[1]), begun_ns)

    def gone(self):
        raise EOFError("the client has gone")

    def leave(self, conn):
        conn.close()
