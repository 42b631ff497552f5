"""Which of CPython's tests are run."""

from upstreamtests.cpython.interpreters import choose, named
from upstreamtests.tested import Suite

FULL = ["test_thread", "test_threading", "test_threading_local", "test_socket", "test_ssl"]
FULL += ["test_select", "test_asyncio", "test_concurrent_futures", "test_subprocess"]
FULL += ["test_fork1", "test_signal", "test_queue", "test_multiprocessing_fork"]
FULL += ["test_multiprocessing_spawn", "test_interpreters", "test_capi", "test_faulthandler"]
FULL += ["test_atexit"]
FAST = ["test_thread", "test_threading", "test_threading_local", "test_queue", "test_fork1"]
FAST += ["test_atexit", "test_capi:*PendingCalls*", "test_capi:*SubinterpreterTest*"]
FAST += ["test_faulthandler:*dump_traceback_threads*", "test_signal:*WakeupSocketSignal*"]
FAST += ["test_interpreters:*TestInterpreterRun*"]

SUITE = Suite("ci/cpython-tests", "CPython", "MODULE", FULL, FAST, named, choose)
