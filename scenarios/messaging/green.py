"""The messaging server of server.py on green threads: coroutines of asyncio, in one thread."""

import asyncio
import json
import socket
import struct
import sys
import time

# So far a coroutine counts before it lets others run: it is not interrupted.
COUNTS_AT_A_TIME = 1000


async def echo(reader, writer):
    writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        while True:
            head = await reader.readexactly(4)
            message = await reader.readexactly(*struct.unpack("!I", head))
            writer.write(head)
            writer.write(message)
            await writer.drain()
    except asyncio.IncompleteReadError:
        writer.close()


async def spin(counts, place):
    while True:
        for _ in range(COUNTS_AT_A_TIME):
            counts[place] += 1
        await asyncio.sleep(0)


async def serve(listener, counts):
    await asyncio.start_server(echo, sock=listener)
    tasks = [asyncio.ensure_future(spin(counts, place)) for place in range(len(counts))]
    lines = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    print(json.dumps({"port": listener.getsockname()[1]}), flush=True)
    while await lines.readline():
        print(json.dumps({"at": time.perf_counter(), "counts": list(counts)}), flush=True)
    for task in tasks:
        task.cancel()


def run(listener, counts):
    asyncio.run(serve(listener, counts))
