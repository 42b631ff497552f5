"""How a method came out, read from what the recorder wrote down."""

import json
from dataclasses import dataclass
from pathlib import Path

# Of several outcomes of one method, with its subtests, the last of these counts.
OUTCOMES = ["pass", "expected failure", "skip", "unexpected success", "fail", "error"]
OUTCOMES += ["hang", "crash", "missing"]
GOOD = ("pass", "expected failure", "skip")
# What is no method: the module's import and exit status, the process's end.
MODULE, EXIT = "<module>", "<exit>"


@dataclass
class Result:
    outcome: str
    said: str = ""

    def add(self, outcome: str, said: str) -> None:
        if OUTCOMES.index(outcome) > OUTCOMES.index(self.outcome):
            self.outcome, self.said = outcome, said


Results = dict[str, Result]


@dataclass(frozen=True)
class Ended:
    """How a process ended."""

    status: int
    hung: bool
    log: str
    # The place of a fatal error, if the log tells it.
    place: str

    @property
    def fatal(self) -> str:
        return "hang" if self.hung else "crash"

    @property
    def where(self) -> str:
        return self.place or self.last_line

    @property
    def last_line(self) -> str:
        return (self.log.strip().splitlines() or ["it said nothing"])[-1][:200]


def is_method(method: str) -> bool:
    return not method.startswith(("<", "setUp", "tearDown"))


def read_events(events: Path, process: Ended, results: Results) -> bool:
    """Add what a process wrote down to `results`; True if no other need be started."""
    running, ended, failed = "", None, False
    before = len(results)
    lines = events.read_text().splitlines() if events.exists() else []
    for event, method, said in map(json.loads, lines):
        if event == "end":
            ended = said
        elif event == "start":
            running = method
        elif event == "stop":
            # Without any outcome: subtests failed, and were written down.
            results.setdefault(method, Result("pass"))
            running = ""
        else:
            results.setdefault(method, Result(event, said)).add(event, said)
            failed = failed or event not in GOOD
    fatal, where, status = process.fatal, process.where, process.status
    if ended is None and running:
        results.setdefault(running, Result(fatal, where)).add(fatal, where)
        return False
    if ended is None:
        results[MODULE] = Result(fatal, f"status {status}, between methods; {where}")
    elif ended not in (0, 4) and not failed:
        results.setdefault(MODULE, Result("error", f"exit status {ended}; {process.last_line}"))
    else:
        results.setdefault(MODULE, Result("pass" if len(results) > before else "skip"))
    if ended is not None:
        as_told = status == ended
        results[EXIT] = Result("pass") if as_told else Result(fatal, f"{status}; {where}")
    return True
