"""For the processes of a cluster that was started here: they end when the one that has started them
has, in whatever way."""

import contextlib
import os
import threading
import time
from typing import Any

import distributed
import psutil

# Between two looks, in seconds.
LOOK_S = 0.5


class Nanny(distributed.Nanny):  # type: ignore[misc]
    """Whose workers end with it."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        watch()
        super().__init__(*arguments, **keywords)


def dask_setup(_: Any) -> None:
    """Called by the scheduler, which has this preloaded."""
    watch()


def watch() -> None:
    # What a terminal sends (Ctrl-C) is for the program, which ends its cluster.
    os.setpgid(0, 0)
    threading.Thread(target=ends_with, args=(os.getppid(),), daemon=True).start()


def ends_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK_S)
    # What it has begun may be in C code that keeps its GIL, and not see that itself.
    for one in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            one.kill()
    os._exit(1)
