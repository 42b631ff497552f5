"""subprocess (vfork), posix_spawn and system() from many threads, beside CPU-bound threads; the
children are no Pythons and inherit the library."""

import os
import subprocess
import threading

import hazard

done = []


def spawn():
    for n in range(6):
        out = subprocess.run(["/bin/echo", str(n)], stdout=subprocess.PIPE, check=True).stdout
        assert out == b"%d\n" % n, out
        pid = os.posix_spawn("/bin/true", ["true"], os.environ)
        hazard.reap(pid)
        assert os.system("exit 3") == 3 << 8
        done.append(n)
    out = subprocess.run(["/bin/sh", "-c", "ls / | cat | wc -l"], stdout=subprocess.PIPE).stdout
    assert int(out) == len([name for name in os.listdir("/") if not name.startswith(".")]), out
    out = subprocess.run(["true"], preexec_fn=lambda: None, check=True)


with hazard.Spinners(2):
    threads = [threading.Thread(target=spawn) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
assert len(done) == 36, len(done)
hazard.ok()
