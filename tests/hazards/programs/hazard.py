"""What the hazard programs share: a watchdog, spinners, children that are looked after.

A program asserts on counts and order only, prints `ok` as its last act and ends with status 0. A
hang becomes a failure with the stacks of all threads.
"""

import faulthandler
import glob
import os
import signal
import threading

WATCHDOG_S = 60

faulthandler.enable()


def watch(seconds=WATCHDOG_S):
    """Prints all stacks and ends the process when it is not done in time. An alarm: it costs no
    thread, and unlike `dump_traceback_later` it does not make a forked child hang at its end."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    faulthandler.register(signal.SIGALRM, all_threads=True, chain=True)
    signal.alarm(seconds)


def watch_child():
    """In a forked child, which does not inherit the alarm."""
    watch(WATCHDOG_S - 20)


watch()


class Spinners:
    """CPU-bound threads, counting, until told to stop."""

    def __init__(self, count, daemon=True):
        self.stop = False
        self.counts = [0] * count
        self.threads = [
            threading.Thread(target=self._spin, args=(n,), daemon=daemon) for n in range(count)
        ]
        for thread in self.threads:
            thread.start()

    def _spin(self, n):
        counts = self.counts
        while not self.stop:
            for _ in range(200):
                counts[n] += 1

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop = True
        for thread in self.threads:
            thread.join()


def child_exits(body):
    """Forks; the child runs `body` and ends without the interpreter's exit. Returns its pid."""
    pid = os.fork()
    if pid == 0:
        status = 70
        try:
            watch_child()
            body()
            status = 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(status)
    return pid


def reap(pid):
    _, status = os.waitpid(pid, 0)
    assert status == 0, "child %d ended with status %#x" % (pid, status)


def threads_work(count=3, rounds=300):
    """Threads that take turns: proof that the lock works here."""
    done = []
    gate = threading.Barrier(count)

    def work():
        gate.wait()
        total = 0
        for _n in range(rounds):
            total += sum(range(50))
        done.append(total)

    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(done) == count and len(set(done)) == 1, done


def trace_files(pid):
    """The traces of a process; None when no traces are written."""
    folder = os.environ.get("DECONVOY_TRACE")
    return glob.glob(os.path.join(folder, "%d-*.trace" % pid)) if folder else None


def helper():
    """The C helper, with the interpreter's lock released in calls and with it kept."""
    import ctypes

    path = os.environ["HAZARD_HELPER"]
    try:
        return ctypes.CDLL(path), ctypes.PyDLL(path)
    except OSError as error:
        if "GLIBC_" not in str(error):
            raise
        # An interpreter that brings a C library older than the one that the helper was built for.
        print("skipped: %s" % error, flush=True)
        os._exit(0)


def ok():
    print("ok", flush=True)
