"""See why threads make a program slower, end the convoy; and futures on threads, forks, a
cluster."""

import importlib
from typing import TYPE_CHECKING, Any

from deconvoy._native import VERSION as __version__

if TYPE_CHECKING:
    from deconvoy.futures import *  # noqa: F403

__all__ = ["__version__"]


def __getattr__(name: str) -> Any:
    # Imported when they are wanted: the command line goes without.
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    futures = importlib.import_module("deconvoy.futures")
    if name in futures.__all__:
        return getattr(futures, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
