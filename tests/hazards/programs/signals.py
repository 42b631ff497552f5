"""Signals: a storm of SIGALRM with a Python handler while threads spin, pthread_kill,
faulthandler, C handlers that signal a condition variable, KeyboardInterrupt for a main thread that
waits for the lock."""

import faulthandler
import os
import signal
import tempfile
import threading
import time

import hazard

# The alarm is needed below.
signal.alarm(0)
faulthandler.unregister(signal.SIGALRM)
faulthandler.dump_traceback_later(hazard.WATCHDOG_S, exit=True)

free, kept = hazard.helper()
handled = [0]


def handler(*_):
    handled[0] += 1


signal.signal(signal.SIGALRM, handler)
signal.signal(signal.SIGUSR2, handler)
with hazard.Spinners(3) as spinners:
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    while handled[0] < 30:
        time.sleep(0)
    signal.setitimer(signal.ITIMER_REAL, 0)
    before = handled[0]
    for thread in spinners.threads:
        signal.pthread_kill(thread.ident, signal.SIGUSR2)
    while handled[0] == before:
        time.sleep(0)
    # A handler in C that signals a condition variable, in whatever the thread is doing.
    assert free.storm_begin(signal.SIGUSR1) == 0
    while free.storm_handled() < 200:
        for thread in spinners.threads:
            signal.pthread_kill(thread.ident, signal.SIGUSR1)
        time.sleep(0)
    with tempfile.TemporaryFile() as out:
        for _ in range(10):
            faulthandler.dump_traceback(out)
        faulthandler.register(signal.SIGUSR1, out, all_threads=True)
        for _ in range(10):
            os.kill(os.getpid(), signal.SIGUSR1)
            time.sleep(0)
        faulthandler.unregister(signal.SIGUSR1)
        out.seek(0)
        assert out.read().count(b"_spin") > 10
    for _ in range(3):
        killer = threading.Thread(
            target=lambda: (time.sleep(0.005), os.kill(os.getpid(), signal.SIGINT))
        )
        try:
            killer.start()
            while True:
                time.sleep(0)
        except KeyboardInterrupt:
            pass
        killer.join()
hazard.ok()
