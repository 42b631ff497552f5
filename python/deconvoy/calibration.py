"""What the operations of this machine take, as measured by `deconvoy doctor --calibrate`."""

from __future__ import annotations

import os
from pathlib import Path


def path() -> Path:
    """Where the measured costs are kept."""
    base = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    return base / "deconvoy" / "costs.toml"


def load() -> str | None:
    """The measured costs as TOML; None: nothing was measured yet."""
    try:
        return path().read_text()
    except OSError:
        return None
