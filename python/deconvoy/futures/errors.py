"""What can go wrong with a future, beside what its function raises."""


class FutureError(Exception):
    """Of a future, not of its function."""


class FutureKilled(FutureError):
    """It was killed."""


class ThreadKilled(BaseException):
    """What the thread is told by that runs a killed future. No `Exception`, so that it is not taken
    for an error of what runs there."""


class FutureLost(FutureError):
    """What ran it ended before it had an answer: by a signal, an exit, a fork."""


class NoFutures(FutureError):
    """There is none to wait for."""
