"""What fib, kmeans, knn and trees share: the modes in which tasks are run, and what is measured.

A program gives functions and their arguments; `Mode.map` returns what they return, in order. In forks
data is what it was when a worker began, so that a program loads it before.
"""
import argparse
import contextlib
import gc
import json
import multiprocessing
import os
import resource
import sys
import time

import digits

MODES = ["sequential", "thread", "fork", "joblib", "future-thread", "future-fork", "future-dask"]

# Their processes are not children of this one, or end later: what they take is not known.
OTHERS_CHILDREN = ["joblib", "future-dask"]

# A mode that this interpreter has not: so it ends, after a line that says why.
LACKS = 3


class GarbageCollector:
    """Seconds in the collector: of this process, and of each task that ran in another one."""

    def __init__(self):
        self.total_s = 0.0
        self.since = 0.0
        # Of PyPy it is not known.
        self.is_known = hasattr(gc, "callbacks")
        if self.is_known:
            gc.callbacks.append(self.told)

    def told(self, phase, info):
        if phase == "start":
            self.since = time.perf_counter()
        else:
            self.total_s += time.perf_counter() - self.since

    def elsewhere(self, program, call, *arguments):
        """Calls it; what it returns, and the seconds if that is not in the process `program`."""
        if os.getpid() == program:
            return call(*arguments), 0.0
        before = self.total_s
        return call(*arguments), self.total_s - before


collector = GarbageCollector()


def in_a_task(program, call, *arguments):
    return collector.elsewhere(program, call, *arguments)


class Mode:
    """Runs tasks. Its pool is there, and has done something, before anything is timed."""

    def __init__(self, name, workers):
        self.name = name
        self.elsewhere_s = 0.0
        self.close = contextlib.ExitStack()
        try:
            self.run = getattr(self, name.replace("-", "_"))(workers)
        except ImportError as error:
            lack(error)
        self.run(abs, [(0,)] * workers)

    def map(self, call, arguments):
        """What the calls with each of these tuples of arguments return."""
        results, seconds = [], 0.0
        tasks = [(os.getpid(), call) + each for each in arguments]
        for result, elsewhere_s in self.run(in_a_task, tasks):
            results.append(result)
            seconds += elsewhere_s
        self.elsewhere_s += seconds
        return results

    def sequential(self, _):
        return lambda call, arguments: [call(*each) for each in arguments]

    def thread(self, workers):
        from concurrent.futures import ThreadPoolExecutor

        return self.executor(ThreadPoolExecutor(workers))

    def fork(self, workers):
        from concurrent.futures import ProcessPoolExecutor

        context = multiprocessing.get_context("fork")
        return self.executor(ProcessPoolExecutor(workers, mp_context=context))

    def executor(self, pool):
        self.close.callback(pool.shutdown)

        def run(call, arguments):
            several = [pool.submit(call, *each) for each in arguments]
            return [one.result() for one in several]

        return run

    def joblib(self, workers):
        import joblib

        parallel = self.close.enter_context(joblib.Parallel(n_jobs=workers))
        return lambda call, arguments: parallel(joblib.delayed(call)(*each) for each in arguments)

    def future_thread(self, workers):
        return self.futures("thread", workers)

    def future_fork(self, workers):
        return self.futures("fork", workers)

    def future_dask(self, workers):
        return self.futures("dask", workers)

    def futures(self, backend, workers):
        from deconvoy.futures import future, touch, with_new_environment

        self.close.enter_context(with_new_environment(backend, max_threads=workers))

        def run(call, arguments):
            several = [future(call, *each) for each in arguments]
            return [touch(one) for one in several]

        return run


def numpy():
    try:
        import numpy
    except ImportError as error:
        lack(error)
    return numpy


def lack(error):
    print(json.dumps({"lacks": str(error)}))
    sys.exit(LACKS)


def parse(work, help_of_work, **more):
    """The arguments that all programs take, and more of them: name=(default, help)."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--mode", choices=MODES, default="sequential")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--work", type=int, default=work, help=help_of_work)
    parser.add_argument("--data", default=digits.FILE, help="the images, if there are any")
    parser.add_argument("--switch-interval", type=float, help="seconds")
    for name, (default, about) in more.items():
        parser.add_argument("--" + name, type=int, default=default, help=about)
    args = parser.parse_args()
    if args.switch_interval is not None:
        sys.setswitchinterval(args.switch_interval)
    return args


def cpu_s():
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def measure(args, calls, body, more=()):
    """Runs `body(map)`, which makes so many `calls`, and prints one line about it, with `more`."""
    cpu_before_s = cpu_s()
    mode = Mode(args.mode, args.workers)
    collected_s = collector.total_s
    begun = time.perf_counter()
    result = body(mode.map)
    elapsed_s = time.perf_counter() - begun
    collected_s = collector.total_s - collected_s + mode.elsewhere_s
    # Processes count when they have ended.
    mode.close.close()
    said = {"elapsed_s": elapsed_s, "calls": calls}
    if args.mode not in OTHERS_CHILDREN:
        said["cpu_s"] = cpu_s() - cpu_before_s
    if collector.is_known:
        said["gc_s"] = collected_s
    said["result"] = result
    said.update(more)
    print(json.dumps(said))
