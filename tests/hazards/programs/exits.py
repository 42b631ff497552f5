"""Every way to leave with daemon threads running: the status is kept, atexit runs, nobody hangs.

Daemon threads spin, or sit in reads, sleeps and locks that come back during finalization."""

import atexit
import os
import subprocess
import sys
import threading
import time

import hazard


def leave(how):
    read_end, write_end = os.pipe()
    blocked = threading.Lock()
    blocked.acquire()

    def read():
        while True:
            os.read(read_end, 1)

    def doze():
        while True:
            time.sleep(0.0005)

    def wait():
        while True:
            blocked.acquire(timeout=0.001)

    for target in (read, read, doze, doze, wait, wait):
        threading.Thread(target=target, daemon=True).start()
    spinners = hazard.Spinners(4)
    while not all(spinners.counts):
        time.sleep(0.001)

    class Late:
        """Lets readers come back when modules are torn down."""

        def __del__(self, write=os.write):
            write(write_end, b"x" * 100)

    sys.late = Late()
    atexit.register(lambda: (os.write(write_end, b"x" * 10), time.sleep(0.002)))
    atexit.register(lambda: print("atexit", flush=True))
    if how == "_exit":
        os._exit(3)
    if how == "thread":
        threading.Thread(target=lambda: os._exit(3)).start()
        time.sleep(50)
    if how == "sys":
        sys.exit(3)
    if how == "error":
        raise RuntimeError("wanted")
    if how == "kill":
        os.kill(os.getpid(), 9)


if len(sys.argv) > 1:
    leave(sys.argv[1])
    sys.exit(0)
wanted = {"_exit": (3, b""), "thread": (3, b""), "kill": (-9, b"")}
for how in ["sys"] * 4 + ["end"] * 4 + ["error", "_exit", "thread", "kill"]:
    ended = subprocess.run(
        [sys.executable, __file__, how], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    status = {"sys": 3, "end": 0, "error": 1}.get(how)
    status, out = wanted.get(how, (status, b"atexit\n"))
    assert (ended.returncode, ended.stdout) == (status, out), (how, ended)
    assert how == "error" or not ended.stderr, ended.stderr.decode()
hazard.ok()
