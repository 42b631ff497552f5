"""`deconvoy history` end to end: a real library with real builds, real threads and its mutex."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from browser import CHROMIUM, Browser
from commandline import DECONVOY, Deconvoy
from generator import git
from library import Library, make
from test_repository import state
from tiny import PROJECT, repository, write

# Of locks, which are counted: no clock, and the same under any load.
LOCKS = {"value": "locks[2] / 1000", "read": "locks = 'locks'", "better": "lower"}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    return make(tmp_path_factory.mktemp("library") / "repository")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Builds are made once for all tests."""
    return str(tmp_path_factory.mktemp("cache"))


@pytest.fixture
def history(deconvoy: Deconvoy, cache: str) -> Deconvoy:
    def run(*arguments: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
        return deconvoy("history", *arguments, env={"XDG_CACHE_HOME": cache} | more)

    return run


def test_the_change_is_found_and_explained(
    library: Library, history: Deconvoy, tmp_path: Path
) -> None:
    library.project(tmp_path, **LOCKS)
    before = state(library.folder)
    done = history("find")
    assert done.returncode == 0, done.stderr
    first, *rest = done.stdout.splitlines()
    assert first.startswith(f"{library.culprit} made locks[2] / 1000 ")
    assert "lower" in first and "1,500 -> 0" in first and first.endswith(": better")
    assert any("Step" in line for line in rest) and "  M format.c" in "\n".join(rest)
    (data,) = json.loads(history("find", "--json").stdout)
    assert data["outcome"] == "found" and data["probability"] > 0.95
    assert [one["id"] for one in data["revisions"]] == [library.culprit]
    # What is known is not built and measured again.
    assert "0 builds made now" in history("find").stdout

    why = history("explain", library.culprit[:10])
    assert why.returncode == 0, why.stderr
    assert "one mutex, precision_mutex (bench): taken 1,500,000 times in" in why.stdout
    assert "as often with 1: on every piece of work" in why.stdout
    assert "get_precision" in why.stdout or "format_double < worker" in why.stdout
    told = json.loads(history("explain", library.culprit, "--json").stdout)
    (lock,) = [
        one for one in told["before"]["threads"]["2"]["by_lock"] if "precision" in one["name"]
    ]
    assert lock["taken"] == 1_500_000
    assert told["after"]["threads"]["2"]["locks"] < 1000
    # Nothing of the user's was touched.
    assert state(library.folder) == before


def test_a_sweep_its_table_and_its_graph(
    library: Library, history: Deconvoy, tmp_path: Path
) -> None:
    library.project(tmp_path, **LOCKS)
    done = history("run", "--evenly", "12")
    assert done.returncode == 0, done.stderr
    assert "12 revisions" in done.stderr
    lines = done.stdout.splitlines()
    assert lines[1].split() == [
        "revision",
        "date",
        "version",
        "locks[2]",
        "/",
        "1000",
        "locks[1]",
        "locks[2]",
    ]
    raw = history("run", "--evenly", "12", "--raw").stdout.splitlines()
    assert f"{library.revisions[0][:10]} 1.0 RATIO 1,500" in raw
    assert raw[-1].startswith(f"{library.revisions[-1][:10]} 1.2 RATIO 0")
    found = json.loads(history("run", "--evenly", "12", "--json").stdout)
    assert len(found["revisions"]) == 12
    measured = [one for one in found["revisions"] if one["metric"]]
    assert all(len(one["samples"]) == 3 for one in measured)

    done = history("graph")
    assert done.returncode == 0, done.stderr
    assert "locks[2] / 1000" in done.stdout and "\x1b" not in done.stdout
    assert "2 threads" in done.stdout
    assert "versions: 1.0 from 0, 1.1 from 2" in done.stdout
    # Those that share a build with one that was measured are there, too.
    assert set(raw) <= set(history("graph", "--raw").stdout.splitlines())
    done = history("graph", "--html", "h.html", "--svg", "h.svg", "--png", "h.png")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["h.html", "h.svg", "h.png"]
    assert (tmp_path / "h.png").read_bytes().startswith(b"\x89PNG")
    again = history("graph", "--html", "h.html")
    assert again.returncode == 2 and "--force" in again.stderr
    told = json.loads(history("graph", "--json").stdout)
    (change,) = told["changes"]
    assert "lower" in change["text"]


def test_failures_of_one_reason_are_one_span(history: Deconvoy, tmp_path: Path) -> None:
    several = [{}] + [{"build": f"echo no compiler {n} >&2; false"} for n in range(1, 4)]
    repository(tmp_path / "repository", [*several, {"build": "true", "level": "2"}])
    write(tmp_path)
    done = history("run")
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("not measured")]
    assert "(3 revisions): sh ./build: exit status 1; it said: no compiler 1" in line
    # One of the broken ones, or that after them.
    found = json.loads(history("find", "--json").stdout)[0]
    assert len(found["revisions"]) == 4


@pytest.mark.parametrize(
    ("levels", "status", "told"),
    [
        (["1", "1", "1"], 3, "no change"),
        (["x", "x", "x"], 2, "which is no number"),
    ],
)
def test_outcomes_have_statuses_of_their_own(
    history: Deconvoy, tmp_path: Path, levels: list[str], status: int, told: str
) -> None:
    revisions = [{"level": f"{one}", "build": f"true {n}"} for n, one in enumerate(levels)]
    repository(tmp_path / "repository", revisions)
    write(tmp_path)
    done = history("find")
    assert done.returncode == status, done.stdout + done.stderr
    assert told in done.stdout + done.stderr


def test_a_revision_that_changes_no_build_is_not_blamed(history: Deconvoy, tmp_path: Path) -> None:
    repository(tmp_path / "repository", [{}, {"level": "2"}, {"docs": "x"}, {"level": "2 "}])
    write(tmp_path)
    done = history("explain", "main~1")
    assert done.returncode == 2 and "is built from the same as" in done.stderr.splitlines()[-1]
    named = done.stderr.split()[-1]
    # What it names can be asked for: the same work, whatever the number that is printed.
    done = history("explain", named)
    assert done.returncode == 0, done.stderr
    assert "do not differ in anything" in done.stdout or "grows with threads" in done.stdout


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="no setpriv")
def test_a_graph_of_what_may_only_be_read(history: Deconvoy, tmp_path: Path) -> None:
    repository(tmp_path / "repository", [{}, {"level": "2"}, {"level": "3"}])
    write(tmp_path)
    assert history("run").returncode == 0
    store = tmp_path / ".deconvoy"
    for path in (*store.iterdir(), store):
        path.chmod(0o555 if path.is_dir() else 0o444)
    # Root, but for what lets root write anything.
    command = ["setpriv", "--inh-caps=-all", "--bounding-set=-all"] if os.getuid() == 0 else []
    done = subprocess.run(
        [*command, *DECONVOY, "history", "graph", "--raw"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    store.chmod(0o755)
    assert done.returncode == 0, done.stderr
    assert [line.split()[-1] for line in done.stdout.splitlines()] == ["1.00", "2.00", "3.00"]


def test_where_nothing_builds_it_is_untestable(history: Deconvoy, tmp_path: Path) -> None:
    repository(tmp_path / "repository", [{"build": f"false {n}"} for n in range(5)])
    write(tmp_path)
    done = history("find")
    assert done.returncode == 5
    assert "untestable: 4 of 5 revisions cannot be measured" in done.stdout
    assert "(4 revisions): sh ./build: exit status 1" in done.stdout


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("first..main", "first..mian", "has no revision 'mian': a commit, a tag or a branch"),
        ("first..main", "main..first", "is not among the first parents"),
        ("first..main", "first", "repository.range is 'OLDEST..NEWEST'"),
        ('path = "repository"', 'path = "nowhere"', "there is no "),
        ('"COUNT=', '"COUMT=', "matches nothing in what the benchmark printed: COUNT="),
        ('"sh ./build"', '"read answer"', "waits for input, which nobody will type"),
        ('"level", "build"]', '"levle"]', "no revision of the range has 'levle'"),
        ("{build}/built)'", "{build}/built)", "benchmark.command: No closing quotation"),
        ("[build]", "[store]\naddress = 'x://y'\n[build]", "store.address 'x://y'"),
    ],
)
def test_mistakes_are_one_line_and_status_2(
    history: Deconvoy, tmp_path: Path, old: str, new: str, told: str
) -> None:
    repository(tmp_path / "repository", [{"level": str(n)} for n in range(1, 4)])
    write(tmp_path, old, new)
    done = history("find")
    assert done.returncode == 2
    last = done.stderr.splitlines()[-1]
    assert last.startswith("deconvoy: ") and told in last
    assert "Traceback" not in done.stderr


def test_a_shallow_repository_is_told(history: Deconvoy, tmp_path: Path) -> None:
    repository(tmp_path / "whole", [{"level": str(n)} for n in range(1, 4)])
    source = f"file://{tmp_path}/whole"
    git(tmp_path, "clone", "--quiet", "--depth", "1", source, "repository")
    write(tmp_path)
    done = history("find")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "git fetch --unshallow" in done.stderr


def test_init_names_revisions_that_there_are(history: Deconvoy, tmp_path: Path) -> None:
    repository(tmp_path / "repository", [{}, {"level": "2"}, {"level": "3"}])
    assert history("init", "repository").returncode == 0
    assert 'range = "HEAD~2..HEAD"' in (tmp_path / "repository" / "deconvoy.toml").read_text()
    assert history().stderr == "deconvoy: no verb; `deconvoy history --help` lists them\n"


def test_init_writes_what_can_be_filled_in(history: Deconvoy, tmp_path: Path) -> None:
    assert history("init").returncode == 0
    assert (tmp_path / "deconvoy.toml").read_text().startswith("# What `deconvoy history` sweeps")
    again = history("init")
    assert again.returncode == 2 and "--force" in again.stderr


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")
@pytest.mark.parametrize("dark", [False, True])
def test_the_page_in_a_browser(
    library: Library, history: Deconvoy, tmp_path: Path, dark: bool
) -> None:
    library.project(tmp_path, **LOCKS)
    assert history("run", "--evenly", "20").returncode == 0
    assert history("graph", "--html", "h.html").returncode == 0
    with Browser(width=1000, height=900, dark=dark) as browser:
        browser.open((tmp_path / "h.html").as_uri(), "document.body.dataset.ready === 'yes'")
        assert browser.run("document.querySelector('#changes li strong').textContent") in {
            one[:10] for one in library.revisions
        }
        assert browser.run("document.querySelectorAll('#table tbody tr').length") == 60
        assert browser.run("document.querySelectorAll('#table tr.failed').length") > 0
        # Fits: nothing is wider than the window but what scrolls.
        assert browser.run("document.documentElement.scrollWidth") <= 1000
        place = browser.run(
            "(({x, y, width, height}) => [x + width / 2, y + height / 4])"
            "(document.querySelector('#plot svg').getBoundingClientRect())"
        )
        browser.mouse("mouseMoved", *place)
        browser.wait("!document.getElementById('tip').hidden")
        told = browser.run("document.getElementById('tip').textContent")
        assert told[:10] in {one[:10] for one in library.revisions}
        browser.run("document.getElementById('plot').focus()")
        browser.press("ArrowRight")
        browser.wait(f"document.getElementById('tip').textContent !== {json.dumps(told)}")
        browser.run(
            "(() => { const find = document.getElementById('find');"
            f" find.value = '{library.revisions[7][:10]} step';"
            " find.dispatchEvent(new Event('input')); })()"
        )
        assert browser.run("document.querySelectorAll('#table tbody tr').length") == 1
        ink = browser.run("getComputedStyle(document.body).color")
        assert browser.run("getComputedStyle(document.querySelector('figure text')).fill") == ink
        assert browser.log == []


def test_what_a_program_without_the_library_tells(history: Deconvoy, tmp_path: Path) -> None:
    """A program that is statically linked cannot be looked into."""
    if shutil.which("musl-gcc") is None:
        pytest.skip("no musl-gcc")
    repository(tmp_path / "repository", [{"level": str(n)} for n in (1, 2)])
    text = PROJECT.replace("sh -c 'echo COUNT=$(cat {build}/built)'", "{benchmark}/it")
    steps = 'folder = "own"\nsteps = ["musl-gcc -static -o it it.c"]'
    text = text.replace("threads = [1]", f"threads = [1]\n{steps}")
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "it.c").write_text("int main(void) { return 0; }\n")
    text = text.replace('{ pattern = "COUNT=(.*)" }', '"locks"')
    (tmp_path / "deconvoy.toml").write_text(text)
    done = history("find")
    assert done.returncode == 2
    assert "no locks were counted" in done.stderr
