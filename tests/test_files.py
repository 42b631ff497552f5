"""Files that a command writes."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from deconvoy.errors import UserError
from deconvoy.files import check_new, write_whole


def test_what_cannot_be_written_is_said_before_anything_is_done(tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.write_text("old")
    for path, says in [
        (there, "there exists: --force replaces it"),
        (tmp_path, "is a folder: name a file"),
        (tmp_path / "no" / "file", f"there is no folder {tmp_path / 'no'}: make it first"),
        (there / "below", "there is no folder"),
        (tmp_path / ("x" * 300), "File name too long"),
    ]:
        with pytest.raises(UserError, match=re.escape(says)):
            check_new(path, force=False)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match="no regular file"):
        check_new(tmp_path / "pipe", force=True)
    check_new(there, force=True)
    check_new(tmp_path / "new", force=False)
    assert there.read_text() == "old"


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_text("old")
    link.symlink_to(real)
    write_whole(link, "ä new one", mode=0o644)
    assert link.is_symlink() and real.read_text(encoding="utf-8") == "ä new one"
    assert real.stat().st_mode & 0o777 == 0o644
    with pytest.raises(UnicodeEncodeError):
        write_whole(real, "half \udcff")
    assert real.read_text(encoding="utf-8") == "ä new one"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "real"]
