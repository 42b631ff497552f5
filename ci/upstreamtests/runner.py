"""Runs a module of the tests, stock or under the library, in as many processes as it takes."""

import json
import os
import select
import shlex
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from upstreamtests.outcomes import Ended, Results, is_method, read_events
from upstreamtests.tested import METHOD_LIMIT_S, Process, Task

# What a module gets beyond its limit: an interpreter that ends it itself tells where it was.
GRACE_S = 30
# The most processes that one module gets when its methods hang or crash.
MOST_PROCESSES = 8

STOCK, LIBRARY = "stock", "library"


# Of the environment: what reaches into an interpreter, and the job server of a `make` around us,
# which Ruby's runner takes for an order to run in parallel.
FOREIGN = ("PYTHON", "RUBY", "GEM_", "BUNDLE_", "LD_", "DECONVOY_", "MAKE")


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
        variables = self.variables(LIBRARY) | dict(task.interpreter.variables)
        settings = [f"{name}={shlex.quote(value)}" for name, value in variables.items()]
        patterns = (method,) if is_method(method) else task.patterns
        return " ".join([*settings, shlex.join(task.interpreter.repeated(task.module, patterns))])

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
        given = Process(events, chosen, work, self.timeout_s)
        kept = {name: v for name, v in os.environ.items() if not name.startswith(FOREIGN)}
        kept |= dict(task.interpreter.variables) | {"TMPDIR": str(work)}
        with log.open("wb") as output:
            process = subprocess.Popen(
                task.interpreter.recorded(task.module, task.patterns, given),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=work,
                env=kept | self.variables(arm),
                start_new_session=True,
            )
        was_killed = self.wait(process, events, task.interpreter.hang_signal)
        text = log.read_text(errors="replace")
        if "KEEP_LOGS" in os.environ:
            module = task.module.replace("/", "-")
            kept_as = f"{task.interpreter.name}-{module}-{arm}-{process.pid}.log"
            Path(os.environ["KEEP_LOGS"], kept_as).write_text(text)
        hung = was_killed or task.interpreter.ended_itself(text)
        ended = Ended(process.returncode, hung, text, task.interpreter.where(text))
        return read_events(events, ended, results)

    def wait(self, process: "subprocess.Popen[bytes]", events: Path, ending: int) -> bool:
        """Wait for the end, and end all that it started; True if it had to be ended by us."""
        started = time.time()
        fd = os.pidfd_open(process.pid)
        try:
            while not select.select([fd], [], [], 1)[0]:
                moved = events.stat().st_mtime if events.exists() else started
                now = time.time()
                silent = now - moved > METHOD_LIMIT_S
                late = now - started > self.timeout_s + GRACE_S
                if silent or late or self.stopped.is_set():
                    process.send_signal(ending)
                    select.select([fd], [], [], 5)
                    return True
            return False
        finally:
            os.close(fd)
            # Not waited for yet, so the number of its group is still its own.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
