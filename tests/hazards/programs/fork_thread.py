"""Fork from threads while others wait for the lock and others hold it; nested forks; a child's
trace is a file of its own."""

import os
import threading

import hazard

errors = []
pids = []


def grandchild():
    hazard.threads_work()


def child():
    with hazard.Spinners(2):
        pid = hazard.child_exits(grandchild)
        hazard.threads_work()
        hazard.reap(pid)
    files = hazard.trace_files(os.getpid())
    assert files is None or len(files) == 1, files


def forker():
    try:
        for _ in range(10):
            pid = hazard.child_exits(child)
            hazard.reap(pid)
            pids.append(pid)
    except BaseException as error:
        errors.append(error)
        raise


with hazard.Spinners(3):
    forkers = [threading.Thread(target=forker) for _ in range(2)]
    for thread in forkers:
        thread.start()
    for thread in forkers:
        thread.join()
assert not errors, errors
assert len(pids) == 20
assert all(len(hazard.trace_files(pid) or [0]) == 1 for pid in pids)
hazard.ok()
