"""The page in a real browser: headless Chromium, driven by Playwright."""

import os
import shutil

import pytest
from test_report_page import make, rows, serving

from taciturn import runs
from taciturn.report import page as report_page
from taciturn.report import series, watch

pytestmark = pytest.mark.slow

ARMS = ("full", "adaptive+ou", "adaptive+ignore+eden:0.5")
BY_ROUND = "#plot-accuracy"


@pytest.fixture(scope="module")
def browser():
    paths = map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))
    path = next(filter(None, paths), None)
    if path is None:
        refuse = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        refuse("there is no Chromium here: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path)
        yield browser
        browser.close()


def until(page, condition):
    """Waits for a condition. Playwright's own wait evaluates it as the page, which may not."""
    for _ in range(300):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(100)
    pytest.fail(f"Never true: {condition}")


@pytest.fixture
def folder(tmp_path):
    return make(tmp_path / "run", *(rows(arm, seed, best=0.9 - 0.1 * i)
                                    for i, arm in enumerate(ARMS) for seed in (0, 1)))  # fmt: skip


@pytest.fixture
def open_page(browser):
    """A function that opens a page and waits for its figures.

    Whatever it says on the console, and every request beyond the page itself, fails the test.
    """
    said, requests, contexts, fine = [], [], [], ["data:,"]

    def open_it(url, allowed=(), **options):
        fine.extend([f"{url}\n", *allowed])
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(url)
        until(
            page, "[...document.querySelectorAll('.plot')].every(p => p.querySelector('.js-line'))"
        )
        return page

    yield open_it
    for context in contexts:
        context.close()
    assert said == []
    assert [one for one in requests if not f"{one}\n".startswith(tuple(fine))] == []


def written(folder):
    path = folder / "report.html"
    shown = report_page.content([folder], series.read(folder))
    runs.write_text(path, report_page.render(shown))
    return path.as_uri()


def count_arms(page, plot):
    """How many have a line and a shade."""
    drawn = page.locator(f"{plot} .scatterlayer .trace path.js-line:not([d=''])").count()
    return drawn / 2


def test_curves_are_there(folder, open_page):
    page = open_page(written(folder))
    assert page.title() == f"synthetic: {', '.join(ARMS)}"
    plots = page.locator(".plot").evaluate_all("plots => plots.map(plot => plot.id.slice(5))")
    assert plots == ["accuracy-upload", "accuracy", "spoke", "norms", "bytes", "bits"]
    last = page.locator(BY_ROUND).evaluate(
        "plot => plot._fullData.filter(one => one.fill === 'none').map(one => one.y.at(-1))"
    )
    assert last == pytest.approx([90.5, 80.5, 70.5], rel=1e-6)
    assert count_arms(page, BY_ROUND) == 3
    # Every line has a length and a place inside its figure.
    for box in page.locator(".plot .js-line").evaluate_all(
        "all => all.map(one => { const box = one.getBoundingClientRect(); "
        "return [box.width, box.x, innerWidth]; })"
    ):
        assert box[0] > 50
        assert 0 < box[1] < box[2]
    assert "80.50 ± 0.71 %" in page.locator("#tables").inner_text()
    assert "50.2 %" in page.locator("#savings").inner_text()


def test_the_toolbar_covers_no_curve_and_shares_nothing(folder, open_page):
    page = open_page(written(folder))
    bar = page.locator(f"{BY_ROUND} .modebar")
    plot = page.locator(f"{BY_ROUND} .nsewdrag")
    box = bar.bounding_box()
    assert box["y"] + box["height"] <= plot.bounding_box()["y"]
    titles = page.locator(f"{BY_ROUND} .modebar-btn").evaluate_all(
        "all => all.map(one => one.title || one.dataset.title)"
    )
    assert "Zoom" in titles
    assert not [title for title in titles if "Share" in title]


def test_the_legend_hides_and_shows_an_arm_in_every_figure(folder, open_page):
    page = open_page(written(folder))
    button = page.locator("#legend button", has_text="eden")
    for hidden in (True, False):
        button.click()
        assert button.get_attribute("aria-pressed") == str(not hidden).lower()
        left = 2 if hidden else 3
        shown = "new Set(plot.data.filter(one => one.visible).map(one => one.meta)).size"
        until(page, f"[...document.querySelectorAll('.plot')].every(plot => {shown} === {left})")
        assert count_arms(page, BY_ROUND) == left


def test_a_phone_shows_it_without_scrolling_sideways(folder, open_page):
    phone = {"viewport": {"width": 360, "height": 700}, "is_mobile": True, "has_touch": True}
    page = open_page(written(folder), **phone)
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    widths = page.locator(".plot .main-svg").evaluate_all(
        "all => all.map(one => one.getBoundingClientRect().width)"
    )
    assert 250 < min(widths) <= max(widths) <= 360


def test_a_page_that_is_watched_grows(tmp_path, open_page, monkeypatch):
    monkeypatch.setattr(watch, "_REST", 0)
    folder = make(tmp_path / "run", rows("full", rounds=4))
    with serving(folder) as url:
        page = open_page(f"{url}/", allowed=[f"{url}/data.json"])
        until(page, "document.querySelector('#status').textContent === 'live'")
        assert "4 of 40 rounds" in page.locator("#subtitle").inner_text()
        make(folder, rows("full"), rows("adaptive+ou"))
        until(page, "document.querySelectorAll('#legend button').length === 2")
        until(page, f"document.querySelector('{BY_ROUND}').data.length === 2")
        runs.write_json(folder / "summary.json", {"task": "synthetic"})
        until(page, "document.querySelector('#status').textContent === 'ended'")
        page.close()
