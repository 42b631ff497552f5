"""The page of a trace in a real browser: it shows what the trace says, and can be moved through."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import CHROMIUM, Browser
from commandline import Deconvoy
from deconvoy._native import simulate, timeline
from deconvoy.bench.simulated import costs_named, messaging_mix

READY = "document.body.dataset.ready === 'yes' && canvas.dataset.frame"

needs_a_browser = pytest.mark.skipif(CHROMIUM is None, reason="no chromium: apt-get install it")


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A convoy: a server beside two threads that compute, as CPython has it, in the simulator."""
    path = tmp_path_factory.mktemp("page") / "7-1.trace"
    simulate("timeout", 2, messaging_mix(2, 100, 60), costs_named("vm"), 1, path)
    return path


@pytest.fixture(scope="module")
def page(trace: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from deconvoy import page
    from deconvoy.traces import load

    path = tmp_path_factory.mktemp("page") / "page.html"
    page.write(path, page.render([(trace, load(trace))]))
    return path


@pytest.fixture
def browser(page: Path) -> Iterator[Browser]:
    with Browser() as browser:
        browser.open(page.as_uri(), READY)
        yield browser
        assert browser.log == []


def view(browser: Browser) -> tuple[int, int]:
    low, _, high = browser.run("canvas.dataset.view").partition("-")
    return int(low), int(high)


def test_the_packed_timeline_has_every_acquisition(trace: Path, deconvoy: Deconvoy) -> None:
    packed = memoryview(timeline(trace))
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = packed[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    holds = 0
    for _ in range(number()):
        number()
        holds += sum((number(), number())[1] & 3 == 2 for _ in range(number()))
    times = [(number(), number())[0] for _ in range(number())]
    asks = [(number(), number())[0] for _ in range(number())]
    assert at == len(packed)
    totals = json.loads(deconvoy("report", trace, "--json").stdout)["processes"][0]["totals"]
    assert (holds, len(times)) == (totals["acquires"], totals["acquires"])
    assert len(asks) == totals["asks"]


@needs_a_browser
def test_a_page_shows_threads_and_findings(browser: Browser) -> None:
    rows = browser.run("[...document.querySelectorAll('tbody tr')].map((row) => row.innerText)")
    names = [row.split("\t")[0] for row in rows]
    assert (sorted(names[:2]), names[2:]) == (["spin-0", "spin-1"], ["server", "client"])
    findings = browser.run("document.querySelector('#findings').innerText")
    assert '"server" waited' in findings and "switch interval" in findings
    names = browser.run("picture.rows.map((row) => row.name)")
    assert sorted(names) == ["server", "spin-0", "spin-1"]
    assert browser.run("picture.lanes.map((lane) => lane.core)") == [0, 1]


@needs_a_browser
def test_what_is_drawn_is_what_the_trace_says(browser: Browser) -> None:
    """The colours of a column are those of what its threads do then."""
    said = browser.run("""(() => {
        const row = picture.shown[0], view = geometry(), ratio = canvas.width / view.width;
        const paint = canvas.getContext("2d"), wrong = [];
        look(row.times[40], row.times[52]);
        draw();
        const now = geometry();
        const seenAll = paint.getImageData(0, 0, canvas.width, canvas.height).data;
        for (let place = 40; place < 52; place++) {
            const middle = (row.times[place] + row.times[place + 1]) / 2;
            const x = now.x(middle), wide = (row.times[place + 1] - row.times[place]) * now.scale;
            if (wide < 6) continue;
            const y = now.rowsTop + ROW - 3;
            const at = 4 * (Math.round(y * ratio) * canvas.width + Math.round(x * ratio));
            const [r, g, b] = seenAll.slice(at, at + 3);
            const seen = b > r + 40 ? 2 : r > b + 40 ? 1 : 0;
            if (seen !== row.does[place]) wrong.push([place, row.does[place], r, g, b]);
        }
        return wrong;
    })()""")
    assert said == []


@needs_a_browser
def test_it_is_moved_through_by_keyboard(browser: Browser) -> None:
    low, high = view(browser)
    browser.press("+")
    browser.wait(f"canvas.dataset.view !== '{low}-{high}'")
    closer = view(browser)
    assert closer[1] - closer[0] == pytest.approx(0.6 * (high - low), abs=2)
    browser.press("ArrowRight")
    browser.wait(f"canvas.dataset.view !== '{closer[0]}-{closer[1]}'")
    assert view(browser)[0] > closer[0]
    browser.press("0")
    browser.wait(f"canvas.dataset.view === '{low}-{high}'")


@needs_a_browser
def test_it_is_moved_through_by_mouse(browser: Browser) -> None:
    low, high = view(browser)
    place = browser.run("(({x, y}) => ({x, y}))(canvas.getBoundingClientRect())")
    x, y = place["x"] + 600, place["y"] + 60
    browser.mouse("mouseWheel", x, y, deltaX=0, deltaY=-600)
    browser.wait(f"canvas.dataset.view !== '{low}-{high}'")
    closer = view(browser)
    browser.mouse("mousePressed", x, y, button="left", clickCount=1)
    browser.mouse("mouseMoved", x - 100, y, button="left", buttons=1)
    browser.mouse("mouseReleased", x - 100, y, button="left", clickCount=1)
    browser.wait(f"canvas.dataset.view !== '{closer[0]}-{closer[1]}'")
    moved = view(browser)
    assert moved[0] > closer[0] and moved[1] - moved[0] == pytest.approx(
        closer[1] - closer[0], abs=2
    )
    browser.mouse("mouseMoved", x, place["y"] + browser.run("geometry().rowsTop") + 8)
    browser.wait("!tip.hidden")
    assert browser.run("tip.textContent").startswith(browser.run("picture.shown[0].name"))


@needs_a_browser
@pytest.mark.parametrize("dark", [False, True])
def test_a_picture_light_and_dark(page: Path, tmp_path: Path, dark: bool) -> None:
    with Browser(dark=dark) as browser:
        browser.open(page.as_uri() + "#500000000-560000000", READY)
        assert view(browser) == (500_000_000, 560_000_000)
        paper = browser.run("getComputedStyle(document.body).backgroundColor")
        assert paper == ("rgb(20, 24, 29)" if dark else "rgb(255, 255, 255)")
        browser.press("t")
        browser.wait(f"getComputedStyle(document.body).backgroundColor !== '{paper}'")
        browser.screenshot(tmp_path / "page.png")
        assert (tmp_path / "page.png").stat().st_size > 10_000
        assert browser.run("canvas.toDataURL('image/png').length") > 10_000


def test_a_page_is_written_by_one_command(trace: Path, tmp_path: Path, deconvoy: Deconvoy) -> None:
    out = tmp_path / "out.html"
    done = deconvoy("report", trace, "--html", out)
    assert (done.returncode, done.stdout) == (0, f"the page: {out}\n")
    text = out.read_text()
    assert "http://" not in text and "https://" not in text and "src=" not in text
    again = deconvoy("report", trace, "--html", out)
    assert again.returncode == 2
    assert again.stderr == f"deconvoy: {out} exists: --force replaces it\n"
    assert deconvoy("report", trace, "--html", out, "--force").returncode == 0


def test_names_of_threads_cannot_break_out_of_the_page() -> None:
    from deconvoy.page import _as_script

    assert "</script>" not in _as_script({"name": "</script><script>alert(1)</script>"})


def test_a_command_that_looks_like_a_place_of_the_page_is_shown_as_it_is(trace: Path) -> None:
    from deconvoy import page
    from deconvoy.traces import load

    analysis = load(trace)
    analysis["process"]["command"] = ["python3", "__DATA__", "__SCRIPT__"]
    text = page.render([(trace, analysis)])
    assert "<title>deconvoy: python3 __DATA__ __SCRIPT__</title>" in text
    assert text.count('id="data-0"') == 1
