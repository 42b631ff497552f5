# An interpreter that is not served: it works, and leaves no trace. Python 2.7 and later.
from __future__ import print_function

import os
import subprocess
import threading
import time

counts = [0, 0]
stop = []


def spin(n):
    while not stop:
        counts[n] += 1


threads = [threading.Thread(target=spin, args=(n,)) for n in range(2)]
for thread in threads:
    thread.start()
for _ in range(20):
    time.sleep(0.0005)
while min(counts) < 1000:
    time.sleep(0)
assert subprocess.call(["true"]) == 0
for _ in range(5):
    pid = os.fork()
    if pid == 0:
        os._exit(4)
    assert os.waitpid(pid, 0)[1] == 4 << 8
stop.append(1)
for thread in threads:
    thread.join()
folder = os.environ.get("DECONVOY_TRACE")
assert not folder or not os.listdir(folder), os.listdir(folder)
print("ok")
