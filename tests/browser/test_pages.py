"""In Chromium a report opens without a network, draws its charts, sorts its tables and logs no error."""

import dataclasses
import json
import re
import shutil
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webdriver import WebDriver
from selenium.webdriver.support.select import Select
from selenium.webdriver.support.ui import WebDriverWait

from planner import Plan, plan
from planner.reports.pages import Page, comparison_page, plan_page, study_page, to_html, write_pictures
from planner.reports.pages.charts import LABEL_LENGTH
from tests.oracles import studies
from tests.oracles.instances import node_group, topology, workload
from topologies.errors import InputError

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome") or ""
DRIVER = shutil.which("chromedriver") or ""
MARKS = ".scatterlayer path, .barlayer path, .heatmaplayer image, .treemaplayer path"
WAIT_S = 60
WIDTHS = (1280, 400)


TABLES = [{"rows": 2_000_000, "dim": 64}, {"rows": 5_000, "dim": 32}, {"rows": 900_000, "dim": 128}]


def planned(nodes: int, ranks: int = 2, copies: int = 1) -> Plan:
    return plan(topology(node_group("a", nodes=nodes, ranks=ranks)), workload(TABLES * copies), effort=0)


PAGES = {
    "two axes": lambda: study_page(studies.grid()),
    "scenarios, measured": lambda: study_page(
        studies.study([(studies.NODES, [1, 2, 4, 8])], scenarios=("fp32", "fp16"), measured=True)
    ),
    "one axis, no prices": lambda: study_page(
        studies.study([(studies.BATCH, [4096, 8192, 65536])], priced=False, measured=True)
    ),
    "one point": lambda: study_page(studies.study([])),
    "1,000 points": lambda: study_page(
        studies.study(
            [
                (studies.NODES, list(range(1, 26))),
                (studies.NIC, [12.5e9, 25e9, 50e9, 100e9]),
                (studies.BATCH, [4096, 8192, 16384, 32768, 65536]),
                (studies.DTYPE, ["fp32", "fp16"]),
            ]
        )
    ),
    "hostile names": lambda: study_page(studies.hostile()),
    "plan": lambda: plan_page(planned(2)),
    "plan for 320 ranks": lambda: plan_page(planned(40, 8, 30)),
    "comparison": lambda: comparison_page({"two nodes": planned(2), "four nodes": planned(4)}),
}


@pytest.fixture(scope="module")
def browser() -> Iterator[WebDriver]:
    """A Chromium of our own with an empty profile; its log of requests is kept."""
    assert CHROMIUM, "install Chromium: apt-get install chromium chromium-driver"
    assert DRIVER, "install its driver: apt-get install chromium-driver"
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    with tempfile.TemporaryDirectory() as profile:
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
        yield driver
        driver.quit()


def resize(browser: WebDriver, width: int) -> None:
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def requests(browser: WebDriver) -> list[str]:
    """The addresses that were asked for since the last call."""
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    return [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]


def show(browser: WebDriver, page: Page, file: Path, width: int = 1280) -> None:
    """Open a page and wait until all charts are drawn."""
    file.write_text(to_html(page, "results.parquet"), encoding="utf-8")
    browser.get("about:blank")
    browser.get_log("performance")
    browser.get_log("browser")
    resize(browser, width)
    browser.get(file.as_uri())
    drawn = "return [...document.querySelectorAll('.chart')].every(c => c.querySelector('.main-svg'))"
    WebDriverWait(browser, WAIT_S).until(lambda driver: driver.execute_script(drawn))
    browser.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", PAGES)
def test_a_page_opens_without_a_network_and_without_an_error(
    browser: WebDriver, name: str, width: int, tmp_path: Path
) -> None:
    """Nothing but the file is asked for, every chart has marks with data, nothing is wider than the window."""
    page = PAGES[name]()
    show(browser, page, tmp_path / "page.html", width)
    asked = requests(browser)
    assert any(address.startswith("file:") for address in asked)
    assert [address for address in asked if not address.startswith(("file:", "data:", "blob:"))] == []
    assert browser.get_log("browser") == []
    charts = browser.find_elements(By.CSS_SELECTOR, ".chart")
    assert [chart.get_attribute("id") for chart in charts] == [
        chart.name for chart in page.charts if hasattr(chart, "views")
    ]
    for chart in charts:
        marks = chart.find_elements(By.CSS_SELECTOR, MARKS)
        assert marks, chart.get_attribute("id")
    assert browser.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")
    inside = """return [...document.querySelectorAll('.chart')].every(c => {
        const svg = c.querySelector('.main-svg').getBoundingClientRect();
        const fits = svg.width <= c.clientWidth + 1 || getComputedStyle(c).overflowX === 'auto' && c.id === 'heat-map';
        return fits && svg.height <= c.clientHeight + 1;
    })"""
    assert browser.execute_script(inside)


def luminance(browser: WebDriver, script: str) -> float:
    """Of the colour, as `rgb(1, 2, 3)`, that a script returns: 0 is black, 255 white."""
    return sum(map(float, re.findall(r"[\d.]+", browser.execute_script(f"return {script}"))[:3])) / 3


def test_a_page_is_dark_where_the_system_is_and_its_button_changes_that(browser: WebDriver, tmp_path: Path) -> None:
    """Charts go with the page."""
    paper = "getComputedStyle(document.documentElement).backgroundColor"
    chart = "document.querySelector('#stages .main-svg').style.background"
    ink = "document.querySelector('#stages .xtick text').style.fill"
    features = [{"name": "prefers-color-scheme", "value": "dark"}]
    try:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        show(browser, plan_page(planned(2)), tmp_path / "page.html")
        button = browser.find_element(By.ID, "scheme")
        for label, is_dark in (("system", True), ("light", False), ("dark", True)):
            assert button.text == f"Colours: {label}"
            WebDriverWait(browser, WAIT_S).until(lambda driver, dark=is_dark: (luminance(driver, chart) < 60) == dark)
            assert (luminance(browser, paper) < 60) == is_dark
            assert (luminance(browser, ink) > 180) == is_dark
            button.click()
        assert browser.get_log("browser") == []
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_charts_are_said_in_words_and_their_values_are_tables(browser: WebDriver, tmp_path: Path) -> None:
    """For whoever reads with a screen reader, or wants the numbers."""
    page = plan_page(planned(2))
    show(browser, page, tmp_path / "page.html")
    for chart in browser.find_elements(By.CSS_SELECTOR, ".chart"):
        assert chart.get_attribute("role") == "img"
        words = browser.find_element(By.ID, chart.get_attribute("aria-describedby"))
        assert words.get_attribute("textContent")
        name = chart.get_attribute("id")
        summary = browser.find_element(By.CSS_SELECTOR, f"#{name}-values summary")
        browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", summary)
        summary.click()
        rows = f"[...document.querySelectorAll('#{name}-values tr')].map(r => [...r.cells].map(c => c.textContent))"
        WebDriverWait(browser, WAIT_S).until(lambda driver, rows=rows: len(driver.execute_script(f"return {rows}")) > 1)
    stages = browser.execute_script(
        "return [...document.querySelectorAll('#stages-values tr')].map(r => [...r.cells].map(c => c.textContent))"
    )
    (data,) = next(one for one in page.charts if one.title == "Where the step goes").views[0].data
    assert [float(row[1]) for row in stages[1:]] == pytest.approx(data["x"], rel=1e-3)
    assert browser.get_log("browser") == []


def test_every_view_of_every_chart_is_drawn(browser: WebDriver, tmp_path: Path) -> None:
    """Choosing a figure draws it with the cells and the title that belong to it."""
    page = study_page(studies.grid())
    show(browser, page, tmp_path / "page.html")
    drawn = []
    for choice in browser.find_elements(By.CSS_SELECTOR, "select"):
        chart = choice.get_attribute("id").removesuffix("-choice")
        for option in Select(choice).options:
            option.click()
            data = f"return document.getElementById('{chart}').data.map(t => JSON.stringify(t.z ?? t.x))"
            drawn.append((chart, tuple(browser.execute_script(data)), option.text))
    several = [chart for chart in page.charts if len(getattr(chart, "views", ())) > 1]
    assert len(drawn) == sum(len(chart.views) for chart in several)
    heat = [values for chart, values, _ in drawn if chart == "heat-map"]
    assert len(set(heat)) == len(heat) >= 5
    assert browser.get_log("browser") == []


def test_a_click_on_a_heading_sorts_by_value_and_unknown_stays_last(browser: WebDriver, tmp_path: Path) -> None:
    show(browser, study_page(studies.grid()), tmp_path / "page.html")
    heads = browser.find_elements(By.CSS_SELECTOR, "#points th")
    column = next(n for n, head in enumerate(heads) if head.text.startswith("throughput"))

    def shown() -> list[str]:
        cells = f"return [...document.querySelectorAll('#points tbody tr')].map(r => r.cells[{column}].textContent)"
        return browser.execute_script(cells)

    before = shown()
    for sign in (1, -1):
        heads[column].find_element(By.TAG_NAME, "button").click()
        known = [float(text) for text in shown() if text != "unknown"]
        assert known == sorted(known, reverse=sign < 0)
        assert shown()[len(known) :] == ["unknown"] * 4
    assert sorted(shown()) == sorted(before)
    assert heads[column].get_attribute("aria-sort") == "descending"


def test_names_from_files_are_text(browser: WebDriver, tmp_path: Path) -> None:
    """What looks like a script, a tag or an entity is shown as it stands, in the page and inside charts."""
    results = studies.hostile()
    show(browser, study_page(results), tmp_path / "page.html")
    assert browser.execute_script("return window.stolen") is None
    assert browser.find_element(By.TAG_NAME, "h1").text == results.name
    assert browser.find_elements(By.CSS_SELECTOR, "main img, main a, main iframe") == []
    ticks = [
        tick.text for tick in browser.find_elements(By.CSS_SELECTOR, "#heat-map .xtick text, #heat-map .ytick text")
    ]
    assert {name for name in studies.HOSTILE_NAMES if len(name) <= LABEL_LENGTH} <= set(ticks)


def test_pictures_are_those_of_the_page_and_the_same_each_time(tmp_path: Path) -> None:
    """One file for each view; equal results give equal bytes."""
    page = study_page(studies.grid())
    page = dataclasses.replace(page, charts=[one for one in page.charts if one.title in ("Scaling", "Memory")])
    views = sum(len(getattr(chart, "views", ())) for chart in page.charts)
    for picture_format, start in (("png", b"\x89PNG"), ("svg", b"<svg")):
        first, again = (write_pictures(page, tmp_path / f"{picture_format}{n}", picture_format) for n in (0, 1))
        assert len(first) == len({file.name for file in first}) == views
        assert all(file.read_bytes().startswith(start) for file in first)
        assert [file.read_bytes() for file in first] == [file.read_bytes() for file in again]


def test_a_browser_that_does_not_start_is_an_error_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "chrome"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("BROWSER_PATH", str(broken))
    with pytest.raises(InputError, match="pictures need a browser, and that of this machine fails: The browser"):
        write_pictures(study_page(studies.study([])), tmp_path / "pictures")
    assert [thread.name for thread in threading.enumerate() if not thread.daemon] == ["MainThread"]
