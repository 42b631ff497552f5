"""Sub-interpreters that share the lock and that have their own, made and ended in a loop, with
threads in each, from one thread and from several."""

import sys
import threading

import hazard

free, kept = hazard.helper()
BODY = b"""
import threading
done = []
def work():
    for n in range(300):
        sum(range(20))
    done.append(1)
threads = [threading.Thread(target=work) for _ in range(3)]
for t in threads: t.start()
for t in threads: t.join()
assert len(done) == 3
"""


def use(own, rounds):
    for _ in range(rounds):
        result = kept.run_subinterpreter(own, BODY)
        assert result == 0, result


use(0, 5)
with hazard.Spinners(2) as spinners:
    use(0, 5)
if sys.version_info >= (3, 12):
    use(1, 10)
    with hazard.Spinners(2):
        use(1, 10)
        threads = [threading.Thread(target=use, args=(1, 5)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    module = None
    for name in ("_interpreters", "_xxsubinterpreters"):
        try:
            module = __import__(name)
            break
        except ImportError:
            pass
    with hazard.Spinners(1):
        for _ in range(5 if module else 0):
            ids = [module.create() for _ in range(3)]
            for id_ in ids:
                module.run_string(id_, BODY.decode())
            for id_ in ids:
                module.destroy(id_)
hazard.threads_work()
hazard.ok()
