"""The command line that both commands share."""

import argparse
import concurrent.futures
import json
import signal
import tempfile
from collections.abc import Sequence
from pathlib import Path

from messages import UserError, say

from upstreamtests.compare import Report, compare
from upstreamtests.report import as_json, print_reports
from upstreamtests.runner import LIBRARY, STOCK, Runner
from upstreamtests.tested import Interpreter, Suite, Task


def tasks_of(interpreters: Sequence[Interpreter], tests: Sequence[str]) -> list[Task]:
    tasks = []
    for interpreter in interpreters:
        patterns: dict[str, tuple[str, ...]] = {}
        for test in tests:
            module, _, pattern = test.partition(":")
            patterns[module] = patterns.get(module, ()) + ((pattern,) if pattern else ())
        tasks += [Task(interpreter, m, p) for m, p in patterns.items() if m in interpreter.tests]
    return tasks


def installed_library() -> Path:
    try:
        from deconvoy import preload
    except ImportError:
        raise UserError(
            "deconvoy is not installed for this Python: name the library with --library"
        ) from None
    return preload.library()


def run_all(runner: Runner, tasks: Sequence[Task], jobs: int) -> list[Report]:
    reports = []
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        futures = [pool.submit(compare, runner, task) for task in tasks]
        try:
            for future in concurrent.futures.as_completed(futures):
                report = future.result()
                task, seconds = report.task, report.seconds
                say(
                    f"{task.interpreter.name} {task.module}: {report.compared} compared, "
                    f"{len(report.of('regression'))} regressions; "
                    f"stock {seconds[STOCK]} s, library {seconds[LIBRARY]} s"
                )
                reports.append(report)
        except BaseException:
            runner.stopped.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return sorted(reports, key=lambda report: tasks.index(report.task))


def run(suite: Suite, options: argparse.Namespace) -> int:
    library = (options.library or installed_library()).absolute()
    if not library.is_file():
        raise UserError(f"{library} is missing")
    tests: list[str] = options.tests or list(suite.fast if options.fast else suite.full)
    modules = list(dict.fromkeys(test.partition(":")[0] for test in tests))
    if options.interpreter:
        interpreters = suite.named(options.interpreter, modules)
    else:
        interpreters = suite.choose(modules, options.fast)
    for one in interpreters:
        if lacking := [module for module in modules if module not in one.tests]:
            say(f"{one.name} does not ship {' '.join(lacking)}")
    jobs = options.jobs or (3 if options.fast else 1)
    with tempfile.TemporaryDirectory(prefix="own-") as folder:
        runner = Runner(library, options.policy, options.timeout, Path(folder))
        reports = run_all(runner, tasks_of(interpreters, tests), jobs)
    print_reports(reports)
    if options.json:
        options.json.write_text(json.dumps(as_json(reports, options), indent=1) + "\n")
    return int(any(report.of("regression") for report in reports))


def main(suite: Suite) -> int:
    about = f"{suite.language}'s own tests, stock and under deconvoy."
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--fast", action="store_true", help="a subset, for CI")
    parser.add_argument("--policy", default="adaptive")
    parser.add_argument("--library", type=Path, help="default: the installed package's")
    parser.add_argument("-i", "--interpreter", action="append", metavar="PATH")
    parser.add_argument("-t", "--tests", action="append", metavar=f"{suite.module}[:PATTERN]")
    parser.add_argument("-j", "--jobs", type=int, help="modules at once; default: 1, with --fast 3")
    parser.add_argument("--timeout", type=int, default=900, metavar="S", help="of a module")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all that was found")
    options = parser.parse_args()
    # Of a shell's background job it is ignored, in all children too, and tests need it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return run(suite, options)
    except UserError as error:
        say(f"{suite.command}: {error}")
        return 2
