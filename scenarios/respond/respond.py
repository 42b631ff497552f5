"""Thousands of requests that overlap, each in a process, a thread or a green thread of its own.

Source: Anderson's "Get Your Thread Off of My Fork". Runs on any CPython from 3.7 on. See README.md in this
folder.
"""
import argparse
import asyncio
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


def respond(output, id, begun_ns, wait_s):
    time.sleep(wait_s)
    write(output, id, begun_ns)


def fork(count, output, wait_s):
    for id in range(count):
        begun_ns = time.monotonic_ns()
        if os.fork() == 0:
            status = 1
            try:
                respond(output, id, begun_ns, wait_s)
                status = 0
            finally:
                os._exit(status)
    for _ in range(count):
        _, status = os.wait()
        assert status == 0, "a child failed"


def thread(count, output, wait_s):
    # As small as they come: address space is what thousands of them run out of.
    threading.stack_size(128 * 1024)
    threads = []
    for id in range(count):
        given = (output, id, time.monotonic_ns(), wait_s)
        threads.append(threading.Thread(target=respond, args=given))
        threads[-1].start()
    for one in threads:
        one.join()


def green(count, output, wait_s):
    async def respond_green(id, begun_ns):
        await asyncio.sleep(wait_s)
        write(output, id, begun_ns)

    async def all_of_them():
        tasks = [asyncio.ensure_future(respond_green(id, time.monotonic_ns())) for id in range(count)]
        await asyncio.gather(*tasks)

    asyncio.run(all_of_them())


def futures(backend, count, output, wait_s):
    from deconvoy.futures import future, touch, with_new_environment

    with with_new_environment(backend, max_threads=count):
        several = [
            future(respond, output, id, time.monotonic_ns(), wait_s) for id in range(count)
        ]
        # Not touched before they have been begun: a touch would run them one after the other here.
        for one in several:
            touch(one, timeout=3600)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mode", choices=MODES, default="thread")
    parser.add_argument("--workers", type=int, default=100)
    parser.add_argument("--wait", type=float, default=1.0, help="seconds")
    parser.add_argument("--output", default=os.devnull)
    args = parser.parse_args()
    output = os.open(args.output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    given = (args.workers, output, args.wait)
    begun = time.monotonic()
    try:
        if args.mode.startswith("future-"):
            futures(args.mode[len("future-") :], *given)
        else:
            {"fork": fork, "thread": thread, "green": green}[args.mode](*given)
    except ImportError as error:
        print(json.dumps({"lacks": str(error)}))
        sys.exit(3)
    print(json.dumps({"elapsed_s": time.monotonic() - begun}))


if __name__ == "__main__":
    main()
