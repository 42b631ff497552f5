"""How the tests run the command."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

Deconvoy = Callable[..., "subprocess.CompletedProcess[str]"]

DECONVOY = [sys.executable, "-m", "deconvoy"]

# Not a measure of anything: a hang must not hang the tests.
HANGS_AFTER_S = 300


def finished(
    command: Sequence[Any], stdin: str = "", limit_s: float = HANGS_AFTER_S, **options: Any
) -> "subprocess.CompletedProcess[str]":
    """A command that has run to its end. Nothing that it started outlives it, a hang included."""
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(
        command, text=True, start_new_session=True, **pipes, **options
    ) as process:
        try:
            out, errors = process.communicate(stdin, timeout=limit_s)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return subprocess.CompletedProcess(command, process.returncode, out, errors)
