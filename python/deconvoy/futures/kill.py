"""Telling a thread that what it runs was killed: an asynchronous exception.

It is raised when the thread next runs Python code: in a loop at once, after a `time.sleep` or
another call in C when that returns, never in a thread that waits for a lock for ever.
"""

import ctypes

# Called with a `threading.get_ident()`, and what is to be raised there. Not by way of Python code,
# which a signal could interrupt.
tell = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_ulong, ctypes.py_object)(
    ("PyThreadState_SetAsyncExc", ctypes.pythonapi)
)
# With None for the exception: takes back what the thread was told and has not noticed.
forget = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_ulong, ctypes.c_void_p)(
    ("PyThreadState_SetAsyncExc", ctypes.pythonapi)
)
