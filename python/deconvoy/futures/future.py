"""A future: what a function will have returned, in another thread, process or machine."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Generic, NoReturn, ParamSpec, TypeVar

from deconvoy import _native

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
T_co = TypeVar("T_co", covariant=True)

# What `concurrent.futures` calls its states.
STATES = {"pending": "PENDING", "running": "RUNNING", "cancelled": "CANCELLED_AND_NOTIFIED"}


class future(_native.Future, concurrent.futures.Future, Generic[T_co]):  # type: ignore[type-arg]
    """`future(function, *args, **kwargs)`: has the present environment run it, and is at once
    there.

    As a decorator it makes a future of a function without arguments, under its name. Touch it for
    the result. It is a `concurrent.futures.Future`, and can be awaited.

    Raises TypeError for what is no function. (The name, and that it is a form and not a pool's
    method, are from Lisp's futures: Halstead's Multilisp, 1985.)
    """

    if TYPE_CHECKING:

        def __init__(
            self, function: Callable[P, T_co], /, *args: P.args, **kwargs: P.kwargs
        ) -> None: ...

        def result(self, timeout: float | None = None) -> T_co: ...

    def __repr__(self) -> str:
        return f"<future {id(self):#x} {self.status}>"

    def __await__(self) -> Generator[Any, None, T_co]:
        return asyncio.wrap_future(self).__await__()

    # What `concurrent.futures.wait` and `as_completed` look at; made when they first do.

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]
        condition = self.__dict__.get("_made_condition")
        if condition is None:
            condition = self.__dict__.setdefault("_made_condition", threading.Condition())
            if not self._watch():
                self.__dict__["_is_told"] = True
            if (watched := getattr(self.environment, "_watched", None)) is not None:
                watched(self)
        made: threading.Condition = condition
        return made

    @property
    def _waiters(self) -> list[Any]:  # type: ignore[override]
        made: list[Any] = self.__dict__.setdefault("_made_waiters", [])
        return made

    @property
    def _state(self) -> str:  # type: ignore[override]
        # To them it is over when those who wait for it are told, not before.
        if "_made_condition" in self.__dict__ and "_is_told" not in self.__dict__:
            return "RUNNING"
        return STATES.get(self._status, "FINISHED")

    def _tell(self) -> None:
        """It is over: whoever waits for it by those means is told."""
        with self._condition:
            self.__dict__["_is_told"] = True
            for waiter in self._waiters:
                if self.cancelled():
                    waiter.add_cancelled(self)
                elif self._status == "done":
                    waiter.add_result(self)
                else:
                    waiter.add_exception(self)
            self._condition.notify_all()

    def _no(self, *_: object) -> NoReturn:
        raise TypeError("only the function of a future gives it a result")

    set_result = set_exception = _no  # type: ignore[assignment]
    set_running_or_notify_cancel = _no
