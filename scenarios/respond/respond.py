"""Thousands of requests that overlap, each in a process, a thread or a green thread of its own.

Source: Anderson's "Get Your Thread Off of My Fork". Runs on any CPython from 3.7 on. See README.md
in this folder.
"""
import argparse
import asyncio
import gc
import json
import os
import sys
import threading
import time

MODES = ["fork", "thread", "green", "future-thread", "future-fork"]
RESPONSE = 512

formatter = threading.Lock()


def write(output, id, begun_ns):
    with formatter:
        when = time.strftime("%Y-%m-%d %H:%M:%S")
    head = '<response id="%d" begun_ns="%d" ended_ns="%d"><time>%s</time><body>' % (
        id,
        begun_ns,
        time.monotonic_ns(),
        when,
    )
    tail = "</body></response>\n"
    text = head + "." * (RESPONSE - len(head) - len(tail)) + tail
    assert os.write(output, text.encode()) == RESPONSE


class Own:
    """Requests that the program begins by itself, and answers in a file."""

    def __init__(self, output, wait_s):
        self.output = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self.wait_s = wait_s
        self.first_s = time.monotonic()

    def begin(self, id):
        return id, time.monotonic_ns()

    async def begin_green(self, id):
        return self.begin(id)

    def respond(self, id, begun_ns):
        time.sleep(self.wait_s)
        write(self.output, id, begun_ns)

    async def respond_green(self, id, begun_ns):
        await asyncio.sleep(self.wait_s)
        write(self.output, id, begun_ns)

    def leave(self, id, begun_ns):
        """Another process has it."""


def fork(count, requests):
    for id in range(count):
        given = requests.begin(id)
        if os.fork() == 0:
            status = 1
            try:
                requests.respond(*given)
                status = 0
            finally:
                os._exit(status)
        requests.leave(*given)
    for _ in range(count):
        _, status = os.wait()
        assert status == 0, "a child failed"


def thread(count, requests):
    # As small as they come: address space is what thousands of them run out of.
    threading.stack_size(128 * 1024)
    done = []

    def respond(*given):
        requests.respond(*given)
        done.append(given)

    threads = []
    for id in range(count):
        threads.append(threading.Thread(target=respond, args=requests.begin(id)))
        threads[-1].start()
    for one in threads:
        one.join()
    assert len(done) == count, "a thread failed"


def green(count, requests):
    async def all_of_them():
        tasks = []
        for id in range(count):
            given = await requests.begin_green(id)
            tasks.append(asyncio.ensure_future(requests.respond_green(*given)))
        await asyncio.gather(*tasks)

    asyncio.run(all_of_them())


def futures(backend, count, requests):
    from deconvoy.futures import future, touch, with_new_environment

    with with_new_environment(backend, max_threads=count):
        several = []
        for id in range(count):
            given = requests.begin(id)
            several.append(future(requests.respond, *given))
            if backend == "fork":
                requests.leave(*given)
        # Not touched before they have been begun: a touch would run them one after the other here.
        for one in several:
            touch(one, timeout=3600)


def timed_collector():
    """Its time from now on, in nanoseconds; empty where the runtime does not tell. Of the
    processor: others may run in between."""
    taken_ns = []

    def told(phase, info):
        taken_ns[0] += time.thread_time_ns() * (1 if phase == "stop" else -1)

    if hasattr(gc, "callbacks"):
        taken_ns.append(0)
        gc.callbacks.append(told)
    return taken_ns


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mode", choices=MODES, default="thread")
    parser.add_argument("--workers", type=int, default=100)
    parser.add_argument("--wait", type=float, default=1.0, help="seconds")
    parser.add_argument("--output", default=os.devnull)
    parser.add_argument("--sockets", type=int, default=0, help="1: from a client")
    args = parser.parse_args()
    if args.mode.startswith("future-"):
        # Before anything is timed, or a client told to come.
        try:
            import deconvoy.futures
        except ImportError as error:
            print(json.dumps({"lacks": str(error)}))
            sys.exit(3)
    collected_ns = timed_collector()
    if args.sockets:
        from sockets import Sockets

        requests = Sockets(write, args.mode == "green", args.wait)
    else:
        requests = Own(args.output, args.wait)
    if args.mode.startswith("future-"):
        futures(args.mode[len("future-") :], args.workers, requests)
    else:
        {"fork": fork, "thread": thread, "green": green}[args.mode](args.workers, requests)
    said = {"elapsed_s": time.monotonic() - requests.first_s}
    if collected_ns:
        said["gc_s"] = collected_ns[0] / 1e9
    print(json.dumps(said))


if __name__ == "__main__":
    main()
