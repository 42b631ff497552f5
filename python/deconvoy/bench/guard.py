"""Ends what we have begun when we ourselves are killed.

A shell that reads which groups of processes have begun and ended, and which folders are half made;
when its input ends, because we have, it ends the groups and removes the folders that are left.
Nothing of ours runs in the programs that are measured.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from deconvoy.files import remove

PROGRAM = """
trap "" INT TERM HUP
groups=" "
while IFS= read -r line; do
    name=${line#* }
    case $line in
        begun*) groups="$groups$name " ;;
        ended*)
            case $groups in
                *" $name "*) groups="${groups%% $name *} ${groups#* $name }" ;;
            esac
            ;;
        half*) set -- "$@" "$name" ;;
        whole*)
            for folder; do
                shift
                [ "$folder" = "$name" ] || set -- "$@" "$folder"
            done
            ;;
    esac
done
for group in $groups; do kill -9 "-$group"; done
# Moved away at once: whoever goes on may make it again. One that is another's by now stays.
for folder; do
    read -r owner < "$folder/$0" && [ "$owner" = "$PPID" ] || continue
    mv -- "$folder" "$folder.gone" && chmod -R u+rwx -- "$folder.gone" && rm -rf -- "$folder.gone"
done
"""

# In a folder that is half made: the process that makes it.
OWNER = ".owner"


class Guard:
    """One for this process, begun with the first program."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shell: subprocess.Popen[bytes] | None = None
        self.stopping = False

    def ready(self) -> None:
        """To be called before a program is begun, so that telling of it takes no time."""
        with self._lock:
            self._begun()

    def _begun(self) -> int:
        """Where the shell reads from."""
        if self._shell is None or self._shell.poll() is not None:
            quiet = subprocess.DEVNULL
            self._shell = subprocess.Popen(
                ["/bin/sh", "-c", PROGRAM, OWNER],
                stdin=subprocess.PIPE,
                stdout=quiet,
                stderr=quiet,
                start_new_session=True,
            )
        assert self._shell.stdin is not None
        return self._shell.stdin.fileno()

    def _tell(self, what: str, which: int | Path) -> None:
        with self._lock, suppress(BrokenPipeError):
            os.write(self._begun(), f"{what} {which}\n".encode())

    @contextmanager
    def half_made(self, folder: Path) -> Iterator[None]:
        """Makes a folder, whose name has no line feed, that is removed unless this ends well."""
        # One that is there is not ours to remove.
        folder.mkdir()
        self._tell("half", folder)
        try:
            (folder / OWNER).write_text(f"{os.getpid()}\n")
            yield
            (folder / OWNER).unlink(missing_ok=True)
        except BaseException:
            remove(folder)
            raise
        finally:
            self._tell("whole", folder)

    def begun(self, group: int) -> None:
        self._tell("begun", group)

    def end(self, group: int) -> None:
        """Ends a group of processes, and forgets it."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
        self._tell("ended", group)

    def end_all(self) -> None:
        """Ends every child of ours with its group: also one that was begun when a signal came,
        before anybody knew its number. Threads that wait for one are told by `stopping`."""
        self.stopping = True
        for child in psutil.Process().children():
            with suppress(ProcessLookupError):
                if os.getpgid(child.pid) == child.pid:
                    os.killpg(child.pid, signal.SIGKILL)


class Ended(KeyboardInterrupt):
    """A signal that ends a program, as Ctrl-C does: what has been begun is ended on the way."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


@contextmanager
def signals_as_interrupts() -> Iterator[None]:
    def end(number: int, _: object) -> None:
        raise Ended(number)

    # Under nohup, for one, it is to go on.
    both = (signal.SIGTERM, signal.SIGHUP)
    heeded = [number for number in both if signal.getsignal(number) is not signal.SIG_IGN]
    known = {number: signal.signal(number, end) for number in heeded}
    try:
        with heard_by_this_thread():
            yield
    finally:
        for number, handler in known.items():
            signal.signal(number, handler)


# How often the main thread is told until it has heard, in seconds.
AGAIN_S = 0.05


@contextmanager
def heard_by_this_thread() -> Iterator[None]:
    """A signal ends a wait of the main thread, whichever thread has taken it.

    The kernel gives a signal for the process to any thread that has it not blocked, and the C
    library blocks all in a thread that is starting another (glibc's `pthread_create`, from 2.32
    on). Python's handlers are run by the main thread, and a system call that it is in goes on if
    another one has taken the signal. So that one is told by a signal of its own, which does
    nothing else.
    """
    me = threading.get_ident()
    heard, ended = threading.Event(), threading.Event()
    told, tells = os.pipe()
    os.set_blocking(tells, False)

    def listen() -> None:
        while number := os.read(told, 1)[0]:
            if number == signal.SIGURG:
                continue
            heard.clear()
            while not (heard.is_set() or ended.is_set()):
                signal.pthread_kill(me, signal.SIGURG)
                heard.wait(AGAIN_S)

    handler = signal.signal(signal.SIGURG, lambda *_: heard.set())
    before = signal.set_wakeup_fd(tells, warn_on_full_buffer=False)
    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    try:
        yield
    finally:
        ended.set()
        signal.set_wakeup_fd(before)
        # Not by closing it: a child that has been forked may have it open too.
        os.set_blocking(tells, True)
        os.write(tells, b"\0")
        listener.join()
        os.close(tells)
        os.close(told)
        signal.signal(signal.SIGURG, handler)


guard = Guard()
