"""Telling a thread that what it runs was killed: an asynchronous exception.

It is raised when the thread next runs Python code: in a loop at once, after a `time.sleep` or
another call in C when that returns, never in a thread that waits for a lock for ever.
"""

from __future__ import annotations

import ctypes

from deconvoy.futures.errors import FutureKilled

_set = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_ulong, ctypes.py_object)(
    ("PyThreadState_SetAsyncExc", ctypes.pythonapi)
)
_clear = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_ulong, ctypes.c_void_p)(
    ("PyThreadState_SetAsyncExc", ctypes.pythonapi)
)


def tell(ident: int) -> None:
    """Has FutureKilled raised in the thread with that `threading.get_ident()`."""
    _set(ident, FutureKilled)


def forget(ident: int) -> None:
    """Takes back what a thread was told and has not noticed. It may be raised in here."""
    _clear(ident, None)
