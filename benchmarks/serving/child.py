"""A process that is started, asked by lines, and ended by its own id."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
from deconvoy.bench.process import RunFailed

# To answer a line, or to end once asked to: far more than any of the programs takes.
PATIENCE_S = 60.0
END_PATIENCE_S = 15.0


def clean_environment(base: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment without what would change how a Python runs, or what runs beneath it."""
    foreign = (
        "PYTHON",
        "DECONVOY_",
        "LD_PRELOAD",
        "GUNICORN_",
        "UVICORN_",
        "WEB_CONCURRENCY",
        "PG",
    )
    kept = {name: value for name, value in base.items() if not name.startswith(foreign)}
    return kept | {"PYTHONDONTWRITEBYTECODE": "1"}


def finished(
    command: list[str],
    patience_s: float,
    environment: Mapping[str, str] | None = None,
    **options: Any,
) -> subprocess.CompletedProcess[str]:
    """A command that has run to its end in a clean environment or the one given; `options` as of
    subprocess.Popen. Whatever it started and left in its process group ends with it.

    Raises:
        subprocess.TimeoutExpired: it took longer.
    """
    with subprocess.Popen(
        command,
        env=clean_environment() if environment is None else dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        **options,
    ) as process:
        try:
            out, errors = process.communicate(timeout=patience_s)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return subprocess.CompletedProcess(command, process.returncode, out, errors)


class Child:
    """A process, with its standard error in a file. Leaving its `with` ends it.

    Args:
        command: what is started; its first word stands for it in messages.
        log: the file that its standard error is added to.
        user: whom it runs as, by name; needs root.
        ends_at: the signal that it ends at in an orderly way.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        log: Path,
        *,
        cwd: Path | None = None,
        user: str | None = None,
        ends_at: signal.Signals = signal.SIGTERM,
    ) -> None:
        self.command, self.log, self.ends_at = list(command), log, ends_at
        self._rest = b""
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                self.command,
                env=dict(environment),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=cwd,
                user=user,
                group=user,
                extra_groups=[] if user else None,
                bufsize=0,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def status(self) -> int | None:
        """As `subprocess` has it: None while it runs, negative when a signal ended it."""
        return self._process.poll()

    def failed(self, what: str) -> RunFailed:
        """An error about this process, with the last that it said."""
        lines = self.log.read_text(errors="replace").strip().splitlines()
        said = f": {lines[-1].strip()}" if lines else ""
        return RunFailed(f"{' '.join(self.command)}: {what}{said}")

    def check(self) -> None:
        """Raises RunFailed when it has ended."""
        if self.status is not None:
            raise self.failed(f"exit status {self.status}")

    def ask(self, order: dict[str, Any], patience_s: float = PATIENCE_S) -> dict[str, Any]:
        """Sends a line, and returns the line that answers it.

        Raises RunFailed when there is none in time.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
        except BrokenPipeError:
            self._process.wait(END_PATIENCE_S)
            self.check()
        line = self._line(patience_s)
        try:
            answer = json.loads(line)
        except ValueError:
            raise self.failed(f"printed {line[:80]!r}, not JSON") from None
        assert isinstance(answer, dict)
        return answer

    def _line(self, patience_s: float) -> bytes:
        assert self._process.stdout is not None
        deadline = time.monotonic() + patience_s
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._rest:
                if not selector.select(max(deadline - time.monotonic(), 0)):
                    raise self.failed(f"no answer in {patience_s:.0f} s")
                part = os.read(self._process.stdout.fileno(), 1 << 20)
                if not part:
                    self._process.wait(END_PATIENCE_S)
                    raise self.failed(f"exit status {self.status}")
                self._rest += part
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def end(self) -> int:
        """Asks it to end, and returns its status.

        Raises RunFailed when it does not end in time; it is killed then, with its children.
        """
        try:
            family = psutil.Process(self.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            family = []
        self._process.send_signal(self.ends_at)
        try:
            status = self._process.wait(END_PATIENCE_S)
        except subprocess.TimeoutExpired:
            what = f"still runs {END_PATIENCE_S:.0f} s after {self.ends_at.name}"
            raise self.failed(what) from None
        finally:
            self._kill(family)
        return status

    def _kill(self, family: Sequence[psutil.Process]) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        # psutil knows a process by its start time, too: an id that is used anew is left alone.
        for process in family:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        if self.status is None:
            self.end()
        else:
            self._kill([])
