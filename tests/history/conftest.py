"""What the tests of histories share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of one test; where its builds are."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    # What is counted needs no quiet machine; what is read here is printed as it is.
    monkeypatch.setattr("deconvoy.bench.machine.QUIET_CORES", 1e9)
    return tmp_path / "cache" / "deconvoy" / "history"
