"""On a free-threaded build: objects that many threads use without counting who does.

Each use of an object by a thread that did not make it changes a count that all threads share, and
so moves between the caches of all cores. Objects whose counting is deferred are left to the
collector.
"""

import ctypes
from collections.abc import Callable

# From Python 3.14 on; 0 where it is of no use, as in a build with a GIL.
_enable: Callable[[object], int] | None
try:
    _enable = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object)(
        ("PyUnstable_Object_EnableDeferredRefcount", ctypes.pythonapi)
    )
except AttributeError:
    _enable = None


def defer(one: object) -> bool:
    """Has it not counted any more, if that can be had; the thread that has made it calls this."""
    return _enable is not None and bool(_enable(one))
