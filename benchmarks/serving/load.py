"""What a load generator measured: phases.py's answer, or wrk's."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deconvoy.bench.process import RunFailed
from deconvoy.bench.stats import quantiles

from serving.child import clean_environment

PROGRAMS = Path(__file__).parent.parent / "programs"

# What wrk may take beyond the time that it is told to.
WRK_PATIENCE_S = 60.0


@dataclass(frozen=True)
class Load:
    """One phase of requests: how many, how long they took, and how many went wrong."""

    requests: int
    elapsed_s: float
    p50_ns: float
    p90_ns: float
    p99_ns: float
    max_ns: float
    # Answers that were not the right ones, or did not come.
    wrong: int
    # Due, but never sent, as the phase was given up: they count in the latencies.
    unsent: int = 0
    first_error: str | None = None

    @property
    def per_second(self) -> float:
        return (self.requests - self.unsent - self.wrong) / self.elapsed_s


def of_phase(answer: dict[str, Any]) -> Load:
    latencies: Sequence[int] = answer["latency_ns"]
    if not latencies:
        raise RunFailed("a phase without a single request")
    p50, p90, p99 = quantiles(latencies, (0.5, 0.9, 0.99))
    return Load(
        requests=len(latencies),
        elapsed_s=answer["elapsed_s"],
        p50_ns=p50,
        p90_ns=p90,
        p99_ns=p99,
        max_ns=max(latencies),
        wrong=answer["wrong"],
        unsent=answer["unsent"],
        first_error=answer["first_error"],
    )


def of_wrk(url: str, connections: int, seconds: float) -> Load:
    """Runs wrk with one thread. It takes whole seconds: `seconds` is rounded, up to 1 at least.

    Raises RunFailed when it fails, or does not end in time.
    """
    length = max(round(seconds), 1)
    command = ["wrk", "--threads", "1", "--connections", str(connections), "--latency"]
    command += ["--duration", f"{length}s", "--timeout", "30s"]
    command += ["--script", str(PROGRAMS / "wrk.lua"), url]
    try:
        done = subprocess.run(
            command,
            env=clean_environment(),
            capture_output=True,
            text=True,
            timeout=length + WRK_PATIENCE_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise RunFailed(f"{' '.join(command)}: still running") from None
    line = (done.stdout.strip().splitlines() or [""])[-1]
    if done.returncode != 0 or not line.startswith("{"):
        raise RunFailed(f"{' '.join(command)}: {(done.stderr or done.stdout).strip()[:200]}")
    found = json.loads(line)
    wrong = found.pop("wrong") + found.pop("socket_errors")
    return Load(**found, wrong=wrong, first_error=line if wrong else None)
