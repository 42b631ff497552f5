"""An analysis as tables and lines, for a terminal."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from deconvoy.errors import UserError
from deconvoy.output import fitting, percent, plain, table, time_text
from deconvoy.traces import NO_TRACES, find_traces, load_all

Report = dict[str, Any]

# Of each table; `--json` has them all.
MOST_THREADS = 30
MOST_PAIRS = 15

# Columns of the table of threads that a narrow terminal goes without, the first one soonest.
DISPENSABLE = ("id", "asked", "forced", "elsewhere", "taken", "longest hold", "wait p50", "waits")

HOW_TO_READ = (
    "held, waited, elsewhere: of the thread's own life. forced: times it had to give the GIL up. "
    "asked: its drop requests."
)

# In the summary after a run.
MOST_PROCESSES = 5
MOST_FINDINGS = 3
MOST_NAMES = 8


def print_summary(out: Console, folder: Path) -> None:
    """The findings in a folder of traces in a few lines, the busiest processes first."""
    try:
        traces = find_traces(folder)
    except UserError:
        out.print(f"deconvoy: no trace: {NO_TRACES}")
        return
    loaded, unreadable = load_all(traces)
    for why in unreadable:
        out.print(f"deconvoy: {plain(why)}")
    reports = [report for _, report in loaded]
    reports.sort(key=lambda report: report["totals"]["waits"], reverse=True)
    # Of processes in which nobody ever waited there is nothing to tell, unless there are no others.
    telling = [report for report in reports if report["totals"]["waits"]] or reports[:1]
    for line in unmatched(reports):
        out.print(f"deconvoy: {line}")
    for report in telling[:MOST_PROCESSES]:
        out.print(f"deconvoy: {plain(title(report))}")
        for finding in report["findings"][:MOST_FINDINGS]:
            print_finding(out, "  ", finding)
    if others := len(reports) - len(telling[:MOST_PROCESSES]):
        what = "process" if others == 1 else "processes"
        waits = sum(report["totals"]["waits"] for report in reports if report not in telling)
        how = "with fewer waits" if waits else "in which nobody waited"
        out.print(f"deconvoy: and {others} more {what}, {how}")
    shown = near(folder)
    out.print(
        f"deconvoy: the trace is in {plain(shown)}; read it with: deconvoy report {plain(shown)}",
        soft_wrap=True,
    )


def unmatched(reports: Sequence[Report]) -> list[str]:
    """A line for each rule of the policy that fits a thread in none of the processes."""
    rules = [set(report["process"]["unmatched"]) for report in reports]
    if not rules:
        return []
    there = dict.fromkeys(kind["label"] for report in reports for kind in report["kinds"])
    few = ", ".join(list(there)[:MOST_NAMES]) + (", …" if len(there) > MOST_NAMES else "")
    return [
        plain(f"no thread fits {rule!r} of the policy; there are {few}")
        for rule in sorted(set.intersection(*rules))
    ]


def near(path: Path) -> str:
    """The path as seen from the current folder, if it is below it."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def title(report: Report) -> str:
    process = report["process"]
    command = " ".join(process["command"]) or "unknown command"
    return f"process {process['pid']}: {shorten(command)}"


def shorten(text: str, most: int = 100) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def print_report(out: Console, report: Report) -> None:
    out.print(f"[bold]{plain(title(report))}[/bold]")
    print_process(out, report)
    print_threads(out, report)
    print_pairs(out, report)
    print_coverage(out, report)
    print_findings(out, report)


def print_process(out: Console, report: Report) -> None:
    process, totals = report["process"], report["totals"]
    facts = table("process", "")
    facts.add_row("command", plain(shorten(" ".join(process["command"]))))
    facts.add_row("runtime", plain(runtime(process["runtime"])))
    facts.add_row("policy", plain(process["policy"]))
    facts.add_row("switch interval", time_text(process["interval_ns"]))
    facts.add_row("cores", str(process["cores"]))
    facts.add_row("duration", time_text(report["duration_ns"]))
    facts.add_row(
        "GVL" if is_ruby(process["runtime"]) else "GIL",
        f"taken {totals['acquires']} times, {totals['waits']} after waiting; "
        f"{totals['switches']} switches, {totals['forced']} of them forced; "
        f"{totals['asks']} drop requests",
    )
    until = process["seen_until_ns"]
    if until is not None:
        facts.add_row(
            "seen",
            f"for {time_text(until)}: then a second Ractor began, which has a lock of its own",
        )
    out.print(facts)


def is_ruby(runtime: str) -> bool:
    return runtime.startswith("ruby ")


def runtime(text: str) -> str:
    """What a trace says of its runtime, for a person: only CPython gives nothing but a version."""
    if text[:1].isdigit():
        return "CPython " + text.partition(" (")[0]
    return {"lab": "the lab", "sim": "the simulator"}.get(text, text)


def print_threads(out: Console, report: Report) -> None:
    kinds = report["kinds"]
    if not kinds:
        return
    rows = [thread_cells(thread) for thread in kinds[:MOST_THREADS]]
    columns = fitting(rows, out.width, DISPENSABLE)
    if "id" not in columns:
        # Namesakes are told apart by their labels.
        for row, kind in zip(rows, kinds, strict=False):
            row["thread"] = plain(kind["label"])
    listing = table(*columns, numbers=tuple(columns[1:]))
    for row in rows:
        listing.add_row(*(row[name] for name in columns))
    out.print(listing)
    omitted = sum(kind["count"] for kind in kinds[MOST_THREADS:])
    say_omitted(out, omitted, "threads")
    left_out = len(rows[0]) - len(columns)
    if not left_out:
        out.print(HOW_TO_READ, style="dim")
    else:
        out.print(f"{left_out} columns left out: the terminal is narrow", style="dim")
    out.print()


def thread_cells(thread: dict[str, Any]) -> dict[str, str]:
    """A row of the table of threads, by column."""
    life = thread["holding_ns"] + thread["waiting_ns"] + thread["elsewhere_ns"]
    wait = thread["wait"]
    return {
        "thread": plain(thread["name"] or thread["label"]),
        "id": str(thread["native_id"] or ""),
        "held": percent(thread["holding_ns"], life),
        "waited": percent(thread["waiting_ns"], life),
        "elsewhere": percent(thread["elsewhere_ns"], life),
        "taken": str(thread["acquires"]),
        "waits": str(thread["waits"]),
        "wait p50": time_text(wait["p50_ns"]),
        "p99": time_text(wait["p99_ns"]),
        "longest": time_text(wait["max_ns"]),
        "longest hold": time_text(thread["hold"]["max_ns"]),
        "forced": str(thread["forced"]),
        "asked": str(thread["asks"]),
    }


def print_pairs(out: Console, report: Report) -> None:
    if not report["pairs"]:
        return
    rows = [pair_cells(pair) for pair in report["pairs"][:MOST_PAIRS]]
    columns = fitting(rows, out.width, ("median", "p99", "together"))
    listing = table(*columns, numbers=tuple(columns[2:]))
    for row in rows:
        listing.add_row(*(row[name] for name in columns))
    out.print(listing)
    say_omitted(out, len(report["pairs"]) - MOST_PAIRS, "pairs")
    print_unheld(out, report["coverage"])


def print_unheld(out: Console, coverage: dict[str, Any]) -> None:
    """What the table of pairs leaves out of all that was waited."""
    free, behind = coverage["lock_free_ns"], coverage["behind_holders_ns"]
    unknown = coverage["unattributed_ns"]
    waited = free + behind + unknown
    if free * 100 >= waited > 0:
        what = "of all waiting the lock was free: wake-ups take their time, and so do busy cores"
        out.print(f"{percent(free, waited)} {what}", style="dim")
    if unknown * 100 >= waited > 0:
        out.print(f"{percent(unknown, waited)} of it is too far back to say", style="dim")
    out.print()


def pair_cells(pair: dict[str, Any]) -> dict[str, str]:
    """A row of the table of who waited behind whom, by column."""
    return {
        "waited": plain(pair["waiter"]["label"]),
        "behind": plain(pair["blocker"]["label"]),
        "waits": str(pair["waits"]),
        "together": time_text(pair["total_ns"]),
        "median": time_text(pair["median_ns"]),
        "p99": time_text(pair["p99_ns"]),
        "longest": time_text(pair["longest_ns"]),
    }


def say_omitted(out: Console, count: int, what: str) -> None:
    if count > 0:
        out.print(f"and {count} more {what}; --json has them all\n")


def print_coverage(out: Console, report: Report) -> None:
    """What is missing from the trace, if anything is."""
    coverage = report["coverage"]
    missing = {
        "overwritten": "events are older than the ring reaches back (a larger --size keeps more)",
        "torn": "events were half written when the process was killed",
        "lost": "events were lost because a table was full",
    }
    for key, why in missing.items():
        if coverage[key]:
            out.print(f"note: {coverage[key]} {why}")
    if coverage["truncated"]:
        out.print("note: the file ends before its last event")


def print_findings(out: Console, report: Report) -> None:
    out.print("[bold]findings[/bold]")
    for number, finding in enumerate(report["findings"], 1):
        print_finding(out, f"{number}. ", finding)


def print_finding(out: Console, head: str, finding: dict[str, Any]) -> None:
    out.print(f"{head}{plain(finding['text'])}")
    if finding["mend"]:
        out.print(f"{' ' * len(head)}-> {plain(finding['mend'])}")
