"""The report in a real browser: it sorts, filters, draws, remembers, and complains of nothing.

Skipped where there is no Chromium, unless NUQ_BROWSER=1 says that there must be one (see install_browser.sh).
"""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from analysis.logs.load import load
from analysis.report.write import How, write
from tests.analysis.conftest import measured
from tests.analysis.synthetic import many_runs

BROWSER, DRIVER = (
    shutil.which("chromium") or "/usr/bin/chromium",
    shutil.which("chromedriver") or "/usr/bin/chromedriver",
)
MISSING = [path for path in (BROWSER, DRIVER) if not os.path.exists(path)]
pytestmark = [
    pytest.mark.skipif(
        bool(MISSING) and os.environ.get("NUQ_BROWSER") != "1", reason=f"no browser: {' and '.join(MISSING)} not found"
    ),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # of selenium's own sockets
]
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--window-size=1280,1000",
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('browser')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(executable_path=DRIVER))
    yield driver
    driver.quit()


def until(browser: Any, condition: str, seconds: float = 120.0) -> None:
    """Waits; a page that never gets there fails with what it said."""
    end = time.monotonic() + seconds
    while not browser.execute_script(f"return Boolean({condition})"):
        assert time.monotonic() < end, f"never: {condition}; {browser.get_log('browser')}"
        time.sleep(0.05)


def opened(browser: Any, path: Path, end: str = "") -> None:
    browser.get("about:blank")
    browser.get(f"{path.resolve().as_uri()}{end}")
    until(browser, "document.body.dataset.figures && document.body.dataset.curves")


def column(browser: Any, name: str) -> list[str]:
    """The texts of a column, in the order and with the rows that are shown."""
    script = """
      const heads = [...document.querySelectorAll('#run-table thead th')];
      const index = heads.findIndex((head) => head.dataset.name === arguments[0]);
      const rows = [...document.querySelectorAll('#run-table tbody tr:not([hidden])')];
      return rows.map((row) => row.cells[index].textContent);"""
    return browser.execute_script(script, name)


def write_into(browser: Any, text: str) -> None:
    box = browser.find_element("id", "run-filter")
    box.clear()
    box.send_keys(text)


def complaints(browser: Any) -> list[str]:
    return [entry["message"] for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]


@pytest.fixture
def report(write_run: Callable[..., Path], tmp_path: Path) -> Path:
    for method, level in (("sgd", 1.0), ("alq", 10.0), ("amq", 9.0)):
        for seed in (1, 2):
            write_run("demo", {"method": method, "seed": seed}, measured(level, (0, 50, 100), seed))
    write_run("demo", {"method": "alq", "seed": 3}, state="failed")
    return write(load(tmp_path / "runs", "demo", cache=False), tmp_path / "figures" / "demo", How(most_figures=3))


@pytest.mark.slow
def test_a_report_sorts_filters_draws_and_remembers(browser: Any, report: Path) -> None:
    opened(browser, report)
    assert browser.execute_script(
        "return [...document.images].length > 0 && [...document.images].every((image) => image.naturalWidth > 0)"
    )
    head = browser.find_element("css selector", "th[data-name=final_accuracy]")
    button = head.find_element("tag name", "button")
    button.click()
    ascending = column(browser, "final_accuracy")
    assert ascending[-1] == "" and ascending[:-1] == sorted(ascending[:-1], key=float)
    assert head.get_attribute("aria-sort") == "ascending"
    button.send_keys("\n")  # by keyboard
    descending = column(browser, "final_accuracy")
    assert descending == [*sorted(ascending[:-1], key=float, reverse=True), ""]
    write_into(browser, "method=alq,amq seed=1")
    assert sorted(column(browser, "method.name")) == ["alq", "amq"]
    assert browser.find_element("id", "run-count").text == "2 of 7 runs"
    browser.refresh()
    until(browser, "document.body.dataset.curves")
    assert browser.find_element("id", "run-filter").get_attribute("value") == "method=alq,amq seed=1"
    assert [*map(float, column(browser, "final_accuracy"))] == sorted(
        map(float, column(browser, "final_accuracy")), reverse=True
    )
    assert (
        browser.find_element("css selector", "th[data-name=final_accuracy]").get_attribute("aria-sort") == "descending"
    )
    for text, count in (
        ("state=failed", 1),
        ("FAILED", 1),
        ("workers=4", 7),
        ("workers=8", 0),
        ("seed=1.0", 3),
        ("metod=alq", 0),
        ("", 7),
    ):
        write_into(browser, text) if text else browser.execute_script(
            "document.querySelector('#run-filter').value = ''; filter('')"
        )
        assert len(column(browser, "run")) == count, text
    write_into(browser, "metod=alq")
    assert browser.find_element("id", "run-count").text == "0 of 7 runs; no setting metod"
    assert not complaints(browser)


@pytest.mark.slow
def test_the_curves_are_drawn_and_can_be_chosen(browser: Any, report: Path) -> None:
    opened(browser, report)
    drawn = (
        "Bokeh.documents.flatMap((each) => [...each._all_models.values()]).filter((each) => each.type === "
        "'ColumnDataSource')"
    )
    assert browser.execute_script(f"return {drawn}.filter((source) => source.data.x.length === 3).length") == 3
    assert browser.execute_script("return document.querySelector('#curves-linear .bk-Figure') !== null")
    for name, choice in (("axis", "bytes sent"), ("quantity", "Validation loss")):
        browser.execute_script(
            "const box = document.getElementById(arguments[0]); box.value = arguments[1]; box.dispatchEvent(new "
            "Event('change'))",
            f"curves-{name}",
            choice,
        )
    assert browser.find_element("id", "curves-log").is_displayed()
    assert not browser.find_element("id", "curves-linear").is_displayed()
    assert "quantity=Validation+loss" in browser.current_url
    assert not complaints(browser)


@pytest.mark.slow
def test_dark_pages_are_dark_and_narrow_ones_stay_inside(browser: Any, report: Path) -> None:
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    )
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 400, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    )
    try:
        opened(browser, report)
        ink, paper = browser.execute_script(
            "const style = getComputedStyle(document.body); return [style.color, style.backgroundColor]"
        )
        assert ink == "rgb(231, 234, 238)" and paper == "rgb(22, 25, 29)"
        assert browser.execute_script("return document.documentElement.scrollWidth") <= 400
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert not complaints(browser)


@pytest.mark.slow
def test_two_thousand_runs_open_sort_and_filter_without_the_network(browser: Any, tmp_path: Path) -> None:
    logs = many_runs(2000, tmp_path / "runs" / "many", steps=5, seeds=80)
    path = write(logs, tmp_path / "figures", How(most_figures=2))
    assert path.stat().st_size < 10_000_000
    browser.get_log("performance")
    opened(browser, path)
    assert len(column(browser, "run")) == 2000
    write_into(browser, "method=amq bucket_size=32")
    assert set(column(browser, "method.name")) == {"amq"} and set(column(browser, "method.bucket_size")) == {"32"}
    browser.find_element("css selector", "th[data-name=validation_loss] button").click()
    losses = [*map(float, column(browser, "validation_loss"))]
    assert losses == sorted(losses) and len(losses) == 80
    asked = [
        entry["message"]
        for entry in browser.get_log("performance")
        if '"Network.requestWillBeSent"' in entry["message"]
    ]
    assert not [message for message in asked if '"url":"http' in message]
    assert not complaints(browser)
