"""exec from a thread while others wait for the lock; the new program works."""

import os
import sys
import threading

import hazard

count = int(sys.argv[1]) if len(sys.argv) > 1 else 0
if count < 5:
    spinners = hazard.Spinners(3)

    def leave():
        os.execv(sys.executable, [sys.executable, __file__, str(count + 1)])

    threading.Thread(target=leave).start()
    spinners.threads[0].join()
    raise AssertionError("exec did not happen")
hazard.threads_work()
hazard.ok()
