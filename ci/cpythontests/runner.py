"""Runs a module of the tests, stock or under the library, in as many processes as it takes."""

import json
import os
import re
import select
import shlex
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cpythontests.interpreters import Interpreter
from cpythontests.outcomes import Results, is_method, read_events

# A method is hung after this; a module ends after the option `--timeout`.
METHOD_LIMIT_S = 150
# The most processes that one module gets when its methods hang or crash.
MOST_PROCESSES = 8

# Passed on as a text: the folder of a script would be in sys.path, and multiprocessing's children
# would run the script once more.
RECORDER = Path(__file__).with_name("recorder.py").read_text()

STOCK, LIBRARY = "stock", "library"


@dataclass(frozen=True)
class Task:
    """One module, or some methods of it, on one interpreter."""

    interpreter: Interpreter
    module: str
    # As for `python -m test -m`; none: all.
    patterns: tuple[str, ...] = ()


class Runner:
    def __init__(self, library: Path, policy: str, timeout_s: int, folder: Path) -> None:
        self.library, self.policy = library, policy
        self.timeout_s, self.folder = timeout_s, folder
        self.stopped = threading.Event()

    def variables(self, arm: str) -> dict[str, str]:
        if arm == STOCK:
            return {}
        return {"LD_PRELOAD": str(self.library), "DECONVOY_POLICY": self.policy}

    def command(self, task: Task, method: str) -> str:
        """For a shell: what repeats `method` under the library."""
        variables = [f"{name}={shlex.quote(v)}" for name, v in self.variables(LIBRARY).items()]
        chosen = [part for pattern in task.patterns for part in ("-m", pattern)]
        if is_method(method):
            chosen = ["-m", method]
        limit = ("--timeout", str(METHOD_LIMIT_S))
        argv = [task.interpreter.path, "-m", "test", "-v", *limit, *chosen, task.module]
        return " ".join([*variables, shlex.join(argv)])

    def run(self, task: Task, arm: str, only: Sequence[str] | None) -> Results:
        """Run the methods in as many processes as it takes to get past those that hang."""
        results: Results = {}
        for _ in range(MOST_PROCESSES):
            with tempfile.TemporaryDirectory(dir=self.folder) as name:
                if self.stopped.is_set() or self.run_process(task, arm, only, results, Path(name)):
                    break
        return results

    def run_process(
        self, task: Task, arm: str, only: Sequence[str] | None, results: Results, folder: Path
    ) -> bool:
        """True: it came to its end, or it is of no use to start another."""
        events, chosen, log = (folder / part for part in ("events", "chosen", "log"))
        left_out = [method for method in results if is_method(method)]
        chosen.write_text(json.dumps({"only": only, "left_out": left_out}))
        (work := folder / "t").mkdir()
        arguments = ["-v", "--timeout", str(self.timeout_s), "--tempdir", str(work)]
        arguments += [part for pattern in task.patterns for part in ("-m", pattern)]
        script = ("-c", RECORDER, str(events), str(chosen))
        foreign = ("PYTHON", "LD_", "DECONVOY_")
        kept = {name: v for name, v in os.environ.items() if not name.startswith(foreign)}
        with log.open("wb") as output:
            process = subprocess.Popen(
                [task.interpreter.path, *script, *arguments, task.module],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=work,
                env=kept | {"TMPDIR": str(work)} | self.variables(arm),
                start_new_session=True,
            )
        was_killed = self.wait(process, events)
        text = log.read_text(errors="replace")
        if "KEEP_LOGS" in os.environ:
            kept_as = f"{task.interpreter.name}-{task.module}-{arm}-{process.pid}.log"
            Path(os.environ["KEEP_LOGS"], kept_as).write_text(text)
        hung = was_killed or bool(re.search(r"^Timeout \(\d", text, re.MULTILINE))
        return read_events(events, process.returncode, hung, text, results)

    def wait(self, process: "subprocess.Popen[bytes]", events: Path) -> bool:
        """Wait for the end, and end all that it started; True if it had to be ended by us."""
        started = time.time()
        fd = os.pidfd_open(process.pid)
        try:
            while not select.select([fd], [], [], 1)[0]:
                moved = events.stat().st_mtime if events.exists() else started
                silent = time.time() - moved > METHOD_LIMIT_S
                if silent or self.stopped.is_set():
                    process.send_signal(signal.SIGABRT)
                    select.select([fd], [], [], 5)
                    return True
            return False
        finally:
            os.close(fd)
            # Not waited for yet, so the number of its group is still its own.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
