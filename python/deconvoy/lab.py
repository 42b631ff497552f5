"""The lab's programs, with the arguments and answers that `scenarios/` states for every runtime.

`python -m deconvoy.lab countdown|server|mix --lock LOCK …`; what LOCK may be: `deconvoy policies`,
and `std`, `parking_lot`, `parking_lot_fair`, `pthread`. Nothing of them runs in Python.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

from deconvoy._native import LabServer, lab_countdown, lab_mix


def countdown(args: argparse.Namespace) -> None:
    workers = args.workers if args.mode == "thread" else 0
    elapsed_s, gil_switches = lab_countdown(args.lock, workers, args.work, trace(args))
    print(json.dumps({"elapsed_s": elapsed_s, "gil_switches": gil_switches}))


def server(args: argparse.Namespace) -> None:
    running = LabServer(args.lock, args.workers, trace(args))
    print(json.dumps({"port": running.port}), flush=True)
    while sys.stdin.readline():
        print(json.dumps({"at": time.perf_counter(), "counts": running.counts()}), flush=True)


def mix(args: argparse.Namespace) -> None:
    elapsed_s = lab_mix(args.lock, sys.stdin.read(), args.seed, trace(args))
    print(json.dumps({"elapsed_s": elapsed_s}))


def trace(args: argparse.Namespace) -> Path | None:
    """The file that a trace of this process goes to."""
    if args.trace is None:
        return None
    folder: Path = args.trace
    return folder / f"{os.getpid()}-{time.time_ns() // 1000}.trace"


def main() -> None:
    programs = {"countdown": countdown, "server": server, "mix": mix}
    parser = argparse.ArgumentParser(prog="python -m deconvoy.lab")
    parser.add_argument("program", choices=programs)
    parser.add_argument("--lock", required=True)
    parser.add_argument("--mode", choices=["sequential", "thread"], default="sequential")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--work", type=int, default=100_000_000)
    parser.add_argument("--mix", help="its name; it is on standard input, as TOML")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--trace", type=Path, help="a folder for the trace")
    args = parser.parse_args()
    try:
        programs[args.program](args)
    except (ValueError, OSError) as error:
        sys.exit(f"deconvoy.lab: {error}")


if __name__ == "__main__":
    main()
