"""Run and trace an unmodified CPython under a better GIL policy."""

from deconvoy._native import VERSION as __version__

__all__ = ["__version__"]
