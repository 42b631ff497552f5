"""The cases that sank earlier attempts at a better lock: `starvation.py SCENARIO` prints how far
each thread came, as JSON, once the measured threads have done their share. It asserts nothing and
looks at no clock but to make load: who is fair and who starves is judged by the test, from the
counts and from the processor time that each thread had.

A spinner's count is in chunks of its own work, the I/O-like threads' in exchanges. Equal time is
not equal work: CPython 3.15.2 runs one of several threads of the same code at a fifth of the speed
of the others now and then (2 of 150 runs of `spinners4` without any library), so what threads owe
each other is judged by time.
"""

import json
import operator
import os
import socket
import sys
import threading
import time

import hazard

CHUNK = 200


def compute(seconds):
    """Bytecode for so much of this thread's own processor time."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        for _ in range(100):
            pass


def processor_time(thread):
    """By its kernel clock: unlike `pthread_getcpuclockid`, an error when the thread is no more."""
    return time.clock_gettime_ns((~thread.native_id << 3) | 6)


def progress(threads, counts):
    """The counts, and behind them the processor times."""
    return counts + [processor_time(thread) for thread in threads]


def run(loads, spinners, until):
    """Runs `loads` (functions of a list in which they count) beside `spinners`; ends when `until`
    of the counts says so."""
    counts = [0] * (len(loads) + spinners)
    stop = threading.Event()
    go = threading.Barrier(len(counts) + 1)

    def load(n):
        go.wait()
        loads[n](lambda: counts.__setitem__(n, counts[n] + 1), stop.is_set)

    def spin(n):
        go.wait()
        while not stop.is_set():
            for _ in range(CHUNK):
                pass
            counts[n] += 1

    threads = [
        threading.Thread(target=load if n < len(loads) else spin, args=(n,), daemon=True)
        for n in range(len(counts))
    ]
    for thread in threads:
        thread.start()
    go.wait()
    # The barrier is a lock of its own: some leave it much later than others.
    while not all(counts):
        time.sleep(0.001)
    first = progress(threads, counts)
    while True:
        since = list(map(operator.sub, progress(threads, counts), first))
        done, time_of = since[: len(threads)], since[len(threads) :]
        if until(done[: len(loads)], done[len(loads) :]):
            break
        time.sleep(0.02)
    stop.set()
    return {
        "loads": done[: len(loads)],
        "spinners": done[len(loads) :],
        "loads_ns": time_of[: len(loads)],
        "spinners_ns": time_of[len(loads) :],
    }


def cpued():
    """Two spinners beside a thread that sleeps for nothing about every millisecond (Nir Aides)."""

    def doze(count, stopped):
        while not stopped():
            compute(0.001)
            time.sleep(0)
            count()

    return run([doze], 2, lambda loads, spins: sum(spins) > 200_000)


def spinners(number):
    # So many slices that a few which another program interrupted weigh little.
    return run([], number, lambda _, spins: sum(spins) > max(400_000, 60_000 * number))


def pingpong(make):
    """Two threads hand a token to and fro beside a spinner."""
    first, second = make(), make()

    def player(mine, other, serves):
        def play(count, stopped):
            if serves:
                other.put()
            while not stopped():
                mine.take()
                count()
                other.put()

        return play

    return run(
        [player(first, second, True), player(second, first, False)],
        1,
        lambda loads, spins: sum(spins) > 100_000 and min(loads) > 20,
    )


class ByEvent:
    def __init__(self):
        self.event = threading.Event()
        self.put = self.event.set

    def take(self):
        self.event.wait()
        self.event.clear()


class ByLock:
    def __init__(self):
        self.lock = threading.Lock()
        self.lock.acquire()
        self.take = self.lock.acquire
        self.put = self.lock.release


def echo_server(count, stopped, server):
    while not stopped():
        data, address = server.recvfrom(64)
        server.sendto(data, address)
        count()


def echo_client_process(address):
    """Another process, so that only the server's thread meets the spinner. Forked first."""
    pid = os.fork()
    if pid == 0:
        client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        client.connect(address)
        client.settimeout(0.5)
        hazard.watch_child()
        # Whoever reads our output waits for its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        parent = os.getppid()
        try:
            while os.getppid() == parent:
                client.send(b"x")
                try:
                    client.recv(64)
                except socket.timeout:
                    continue
        except OSError:
            pass
        os._exit(0)
    return pid


def udp():
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("127.0.0.1", 0))
    echo_client_process(server.getsockname())
    return run(
        [lambda count, stopped: echo_server(count, stopped, server)],
        1,
        lambda loads, spins: sum(spins) > 100_000 and min(loads) > 20,
    )


def many_io():
    """50 threads that do I/O against one spinner: so long that each has come often enough to be
    compared, if that is asked for."""
    least = int(sys.argv[2]) if len(sys.argv) > 2 else 2

    def pipe(count, stopped):
        read_end, write_end = os.pipe()
        while not stopped():
            os.write(write_end, b"x")
            os.read(read_end, 1)
            time.sleep(0.001)
            count()

    return run([pipe] * 50, 1, lambda loads, spins: sum(spins) > 10_000 and min(loads) >= least)


def computing_io():
    """Threads that compute for 1 to 10 ms between calls, beside a spinner."""

    def work(milliseconds):
        def body(count, stopped):
            while not stopped():
                compute(milliseconds / 1000)
                time.sleep(0.002)
                count()

        return body

    times = (1, 2, 5, 10)
    return run([work(t) for t in times], 1, lambda loads, spins: sum(spins) > 30_000)


def phases():
    """A thread that computes for a while, then does I/O for a while, beside two spinners."""

    def alternate(count, stopped):
        while not stopped():
            compute(0.03)
            for _ in range(20):
                time.sleep(0.0005)
            count()

    return run([alternate], 2, lambda loads, spins: sum(spins) > 30_000 and min(loads) >= 2)


def interpreters():
    """A thread of a sub-interpreter that shares the lock with two spinners of the main one. CPython
    3.9 to 3.12 hand a drop request to the asker's own interpreter only."""
    _, kept = hazard.helper()
    body = b"import time\nfor _ in range(5): time.sleep(0.0005)\n"

    def sleep(count, stopped):
        while not stopped():
            assert kept.run_subinterpreter(0, body) == 0
            count()

    return run([sleep], 2, lambda loads, spins: min(loads) >= 4)


SCENARIOS = {
    "cpued": cpued,
    "spinners2": lambda: spinners(2),
    "spinners4": lambda: spinners(4),
    "spinners8": lambda: spinners(8),
    "event": lambda: pingpong(ByEvent),
    "lock": lambda: pingpong(ByLock),
    "udp": udp,
    "many_io": many_io,
    "computing_io": computing_io,
    "phases": phases,
    "interpreters": interpreters,
}

if __name__ == "__main__":
    print(json.dumps(SCENARIOS[sys.argv[1]]()), flush=True)
    print("ok", flush=True)
    os._exit(0)
