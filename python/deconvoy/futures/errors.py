"""What can go wrong with a future, beside what its function raises."""


class FutureError(Exception):
    """Of a future, not of its function."""


class FutureKilled(FutureError):
    """It was killed; also what the thread that runs it is told by."""


class FutureLost(FutureError):
    """What ran it ended before it had an answer: by a signal, an exit, a fork."""


class NoFutures(FutureError):
    """There is none to wait for."""
