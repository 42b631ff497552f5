"""Ends what the bench has begun when the bench itself is killed.

A shell that reads which groups of processes have begun and ended; when its input ends, because we
have, it ends those that are left. Nothing of ours runs in the programs that are measured.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from contextlib import suppress

import psutil

PROGRAM = """
trap "" INT TERM HUP
groups=" "
while read -r what group; do
    case $what in
        begun) groups="$groups$group " ;;
        ended) groups="${groups%% $group *} ${groups#* $group }" ;;
    esac
done
for group in $groups; do kill -9 "-$group"; done
"""


class Guard:
    """One for this process, begun with the first program."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shell: subprocess.Popen[bytes] | None = None

    def ready(self) -> None:
        """To be called before a program is begun, so that telling of it takes no time."""
        with self._lock:
            self._begun()

    def _begun(self) -> int:
        """Where the shell reads from."""
        if self._shell is None or self._shell.poll() is not None:
            quiet = subprocess.DEVNULL
            self._shell = subprocess.Popen(
                ["/bin/sh", "-c", PROGRAM],
                stdin=subprocess.PIPE,
                stdout=quiet,
                stderr=quiet,
                start_new_session=True,
            )
        assert self._shell.stdin is not None
        return self._shell.stdin.fileno()

    def _tell(self, what: str, group: int) -> None:
        with self._lock, suppress(BrokenPipeError):
            os.write(self._begun(), f"{what} {group}\n".encode())

    def begun(self, group: int) -> None:
        self._tell("begun", group)

    def end(self, group: int) -> None:
        """Ends a group of processes, and forgets it."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
        self._tell("ended", group)

    def end_all(self) -> None:
        """Ends every child of ours with its group: also one that was begun when a signal came,
        before anybody knew its number."""
        for child in psutil.Process().children():
            with suppress(ProcessLookupError):
                if os.getpgid(child.pid) == child.pid:
                    os.killpg(child.pid, signal.SIGKILL)


guard = Guard()
