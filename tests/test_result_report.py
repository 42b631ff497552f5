"""A result as tables, Markdown, CSV, plots, and as a page in a real browser."""

from __future__ import annotations

import csv
import io
import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from browser import CHROMIUM, Browser
from commandline import Deconvoy
from deconvoy.bench import formats
from deconvoy.bench.drawings import drawings
from deconvoy.bench.results import Result, Run
from deconvoy.bench.summary import cells

MACHINE = {
    "processor": "P & <Q>",
    "cores_available": 2,
    "memory_bytes": 2**34,
    "kernel": "6",
    "virtual_machine": True,
    "governor": None,
    "load_at_start": [0.0, 0.0, 0.0],
}
GREEN = ("green", 200, 1.3)


def runs(scenario: str, runtime: str, mode: str, workers: int, elapsed_s: float) -> Iterator[Run]:
    generator = np.random.default_rng(zlib.crc32(f"{scenario}{mode}{workers}".encode()))
    for order in range(5):
        took = elapsed_s * generator.normal(1, 0.01)
        values = {
            "elapsed_s": took,
            "user_s": took,
            "system_s": took / 10,
            "voluntary_switches": 5,
            "involuntary_switches": 7,
            "minor_faults": 100,
            "major_faults": 0,
            "peak_memory_bytes": 2**24,
            "machine_memory_bytes": 2**25,
        }
        if scenario in ("respond", "messaging"):
            values["latency_ns"] = [int(n) for n in generator.lognormal(14, 1, 50)]
        yield Run(runtime, scenario, workers, order, values, 0.0, True, mode=mode)


def a_result() -> Result:
    """Every kind of scenario that has a plot or a table."""
    found: list[Run] = []
    for runtime, speed in (("c", 1.0), ("cpython3.11", 9.0), ("go1.26", 2.0)):
        found += runs("countdown", runtime, "sequential", 1, speed)
        for workers in (2, 4):
            gained = 1 if runtime == "cpython3.11" else min(workers, 2)
            found += runs("countdown", runtime, "thread", workers, speed / gained)
        for mode, count, took in (("fork", 200, 1.5), ("thread", 200, 1.2), GREEN):
            found += runs("respond", runtime, mode, count, took)
        for beside in (0, 1):
            found += runs("messaging", runtime, "thread", beside, 1.0 + beside * speed)
    for design, (one, two) in {"mutex": (1.0, 1.2), "own": (0.9, 0.45)}.items():
        for workers, took in ((1, one), (2, two)):
            found += runs(f"format-{design}", "c", "thread", workers, took)
    names = dict.fromkeys(run.runtime for run in found)
    skipped, failed = {"perl": "not installed: <none>"}, {"tcl8.6": "exit status 1"}
    settings = {"rounds": 5, "seed": 1}
    return Result(
        ["deconvoy", "bench"], 0.0, "0", MACHINE, settings, dict.fromkeys(names, "it"), found,
        skipped, failed,
    )  # fmt: skip


@pytest.fixture
def place(tmp_path: Path) -> Path:
    made = tmp_path / "result.jsonl"
    a_result().save(made)
    return made


def test_a_result_is_reported_as_it_was_shown(deconvoy: Deconvoy, place: Path) -> None:
    done = deconvoy("report", place)
    assert done.returncode == 0
    for title in (
        "countdown: medians",
        "respond: medians",
        "messaging: medians",
        "format: medians",
    ):
        assert title in done.stdout
    assert "how the time falls with workers" in done.stdout
    assert "skipped: perl: not installed: <none>" in done.stdout
    data = json.loads(deconvoy("report", place, "--json").stdout)
    assert len(data["cells"]) == len(cells(a_result()))


def test_why_a_design_serialises() -> None:
    found = cells(a_result())
    said = {
        formats.design_of(key): formats.why(found[one], cell, 2)
        for key, cell in found.items()
        if formats.is_format(key) and key.workers == 2
        for one in found
        if one.scenario == key.scenario and one.workers == 1
    }
    assert said["own"] == "run at a time"
    assert said["mutex"].startswith("serialise: neither for sleep nor awake")
    key, cell = next((key, cell) for key, cell in found.items() if key.scenario == "format-mutex")
    for values, why in (
        ({"voluntary_switches": 9000}, "they sleep until they are woken"),
        ({"user_s": 2.5}, "they wait awake, for memory or a lock"),
    ):
        several = [run for run in a_result().runs if run.scenario == key.scenario]
        worse = [run for run in several if run.workers == 2]
        for run in worse:
            run.values |= values
        made = cells(Result([], 0.0, "0", MACHINE, {}, {"c": ""}, worse))
        assert why in formats.why(cell, next(iter(made.values())), 2)


def test_markdown_and_csv_have_every_cell(deconvoy: Deconvoy, place: Path, tmp_path: Path) -> None:
    done = deconvoy("report", place, "--markdown", "r.md", "--csv", "r.csv")
    assert (done.returncode, done.stdout.split()) == (0, ["r.md", "r.csv"])
    written = (tmp_path / "r.md").read_text()
    tables = written.split("## ")[1:]
    # Of the results, of the sources of two, and all that was measured.
    assert len(tables) == 5 + 2 + 1
    for table in tables:
        lines = [line for line in table.splitlines() if line.startswith("|")]
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) == 1
    rows = list(csv.DictReader(io.StringIO((tmp_path / "r.csv").read_text())))
    found = cells(a_result())
    assert {row["runtime"] for row in rows} == {"c", "cpython3.11", "go1.26"}
    assert len(rows) == sum(len(cell.estimates) for cell in found.values())
    assert all(float(row["low"]) <= float(row["median"]) <= float(row["high"]) for row in rows)


def test_plots_are_pictures(deconvoy: Deconvoy, place: Path, tmp_path: Path) -> None:
    done = deconvoy("report", place, "--svg", "svg", "--png", "png")
    assert done.returncode == 0, done.stderr
    names = {one.name for one in drawings(a_result())}
    assert {"workers-countdown", "latency-respond", "modes-respond", "published-messaging"} <= names
    assert {path.stem for path in (tmp_path / "svg").iterdir()} == names
    for path in (tmp_path / "png").iterdir():
        assert path.read_bytes().startswith(b"\x89PNG") and path.stem in names
    again = deconvoy("report", place, "--svg", "svg")
    assert again.returncode == 2 and "svg is not empty: --force" in again.stderr


def test_mistakes_are_told(deconvoy: Deconvoy, place: Path, tmp_path: Path) -> None:
    (tmp_path / "some.trace").write_bytes(b"none")
    for arguments, says in (
        (["some.trace", "--csv", "x.csv"], "is no result of the bench"),
        ([place, "--process", "5"], "--process is of traces"),
        ([place, "--html", "missing/x.html"], "there is no folder missing"),
        ([place, "--png", "some.trace"], "is no folder"),
    ):
        done = deconvoy("report", *arguments)
        assert done.returncode == 2 and says in done.stderr
    assert not list(tmp_path.glob("x.*"))


# Everything that could leave a frame, and what could be fetched.
OUTSIDE = (
    "[...document.querySelectorAll('[src],[href]')].map((e) => e.getAttribute('href') || e.src)"
)
WIDE = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
FIRST = "[...document.querySelectorAll('#table-1 tbody tr')].map((row) => row.cells[0].textContent)"


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")
@pytest.mark.parametrize("dark", [False, True])
def test_the_page_in_a_browser(deconvoy: Deconvoy, place: Path, tmp_path: Path, dark: bool) -> None:
    assert deconvoy("report", place, "--html", "r.html").returncode == 0
    with Browser(width=900, dark=dark) as browser:
        browser.open((tmp_path / "r.html").as_uri(), "document.body.dataset.ready === 'yes'")
        assert browser.run(
            "document.title"
        ) == "deconvoy bench: countdown, respond, messaging, " + ("format-mutex, format-own")
        assert "P & <Q>, 2 cores" in browser.run("document.querySelector('.about').textContent")
        notes = browser.run("document.querySelector('.notes').textContent")
        assert "not installed: <none>" in notes and "failed: tcl8.6: exit status 1" in notes
        assert browser.run("document.querySelectorAll('figure svg').length") == len(
            list(drawings(a_result()))
        )
        # What a plot refers to is in it, and nothing is twice.
        names = browser.run("[...document.querySelectorAll('[id]')].map((e) => e.id)")
        assert len(names) == len(set(names))
        assert all(one.startswith("#") and one[1:] in names for one in browser.run(OUTSIDE) if one)
        assert browser.run(WIDE) == 0
        # Text and lines have the page's colours.
        ink = browser.run("getComputedStyle(document.body).color")
        tick = "getComputedStyle(document.querySelector('figure text')).fill"
        assert browser.run(tick) == ink
        rows = browser.run(FIRST)
        for _ in range(2):
            browser.run("document.querySelector('#table-1 th:nth-child(4)').click()")
        falling = [
            float(text.split()[0])
            for text in browser.run(
                "[...document.querySelectorAll('#table-1 tbody tr')]"
                ".map((row) => row.cells[3].textContent)"
            )
        ]
        assert falling == sorted(falling, reverse=True)
        assert sorted(browser.run(FIRST)) == sorted(rows)
        assert browser.log == []
