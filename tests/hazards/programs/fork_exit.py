"""A forked child that leaves by the interpreter's own exit, with threads running, its parent in
turmoil; os.forkpty too."""

import os
import sys

import hazard

with hazard.Spinners(2):
    for n in range(20):
        pid = os.fork() if n % 2 == 0 else os.forkpty()[0]
        if pid == 0:
            hazard.watch_child()
            hazard.Spinners(2)
            hazard.threads_work(2, 50)
            sys.exit(7)
        _, status = os.waitpid(pid, 0)
        assert os.WIFEXITED(status) and os.WEXITSTATUS(status) == 7, hex(status)
hazard.ok()
