"""The pages of runs as a real browser shows them."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from shared.cluster.page import write_survey
from shared.cluster.survey import AllReduce, ClusterSurvey, RankPair
from tests.browser.chromium import Chromium
from tests.browser.conftest import serving
from tests.local.support import command, environ, pipeline, step

pytestmark = pytest.mark.slow

AXE = (Path(__file__).parent / "axe.min.js").read_text()
KINDS = ("good", "failed", "sweep", "compare")
CONTROLS = 'a[href], button, input, select, summary, [tabindex="0"]'
FOCUSED = """(() => {
  const one = document.activeElement;
  window.walked.add(one);
  return [getComputedStyle(one).outlineStyle, one.getBoundingClientRect().top, one.outerHTML.slice(0, 99)];
})()"""


def serious(browser: Chromium) -> list[str]:
    """What axe-core finds that keeps people from using the page."""
    browser.run(f"{AXE}; 0")
    browser.run("document.querySelectorAll('details').forEach((one) => { one.open = true; }); 0")
    found = browser.run("axe.run(document).then((result) => JSON.stringify(result.violations))")
    return [
        f"{one['id']}: {one['help']}: {one['nodes'][0]['html'][:200]}"
        for one in json.loads(found)
        if one["impact"] in ("serious", "critical")
    ]


def check_page(browser: Chromium, address: str) -> None:
    assert browser.faults == []
    beyond = [one for one in browser.requests if not one.startswith(("file://", "data:", "http://127.0.0.1:"))]
    assert beyond == []
    assert not browser.run("document.documentElement.scrollWidth > innerWidth"), "wider than the window"
    assert serious(browser) == [], address


def walk_by_tab(browser: Chromium) -> None:
    """Go through a page by the Tab key: each control is reached once, is in sight, and is seen to have the focus."""
    wanted = browser.run("document.activeElement.blur(); window.walked = new Set(); 0") or browser.run(
        f"[...document.querySelectorAll('{CONTROLS}')].filter((one) => one.checkVisibility()).length"
    )
    height = browser.run("document.documentElement.scrollHeight")
    for _ in range(wanted):
        for kind in ("rawKeyDown", "keyUp"):
            browser.call("Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab", windowsVirtualKeyCode=9)
        outline, top, told = browser.run(FOCUSED)
        assert outline == "solid", told
        assert -1 <= top < browser.run("innerHeight"), told
    assert browser.run("window.walked.size") == wanted, "one of them holds the focus"
    assert browser.run("document.documentElement.scrollHeight") == height, "what was drawn has moved what is below"


@pytest.mark.parametrize(("width", "dark"), [(1200, False), (400, True)])
def test_pages_can_be_read_by_everybody_in_both_schemes_and_on_a_telephone(
    browser: Chromium, runs: dict[str, Path], width: int, dark: bool
) -> None:
    for kind in KINDS:
        browser.show(runs[kind].as_uri(), width=width, dark=dark)
        paper = browser.run("getComputedStyle(document.body).backgroundColor")
        assert (paper == "rgb(18, 22, 29)") is dark
        check_page(browser, kind)
        cut = "[...document.querySelectorAll('figure > svg *')].filter((one) => one.getBoundingClientRect().right > one.closest('figure').getBoundingClientRect().right).length"
        assert browser.run(cut) == 0, "of a picture without scripts"
        if not dark:
            walk_by_tab(browser)


def test_pages_of_components_can_be_read_by_everybody_too(browser: Chromium, tmp_path: Path) -> None:
    machine = {"rank": 0, "node": 0, "host": "here", "device": {"name": "CPU"}, "infiniband": []}
    survey = ClusterSurvey("gloo", [machine], [RankPair(0, 1, 0.01)], [AllReduce(4, 0.001, 1)], ["one is <slow>"])
    write_survey(tmp_path, survey)
    browser.show((tmp_path / "index.html").as_uri(), width=400, dark=True)
    check_page(browser, "index.html")
    walk_by_tab(browser)


def test_the_served_pages_too_and_the_list_leads_to_a_comparison(browser: Chromium, runs: dict[str, Path]) -> None:
    with serving(runs["home"]) as address:
        browser.show(address)
        check_page(browser, "the list")
        browser.run("document.querySelector('input[value=failed]').click()")
        browser.run(
            "document.querySelector('input[name=search]').value = 'train.LOSS'; document.querySelector('form').submit()"
        )
        browser.until("location.search.includes('status=failed') && document.readyState === 'complete'")
        run = runs["failed"].parent.name
        assert browser.run("[...document.querySelectorAll('td a')].map((one) => one.textContent)") == [run]
        check_page(browser, "the list of what fits")
        browser.show(address)
        browser.run("[...document.querySelectorAll('input[name=run]')].slice(2).forEach((one) => one.click())")
        browser.run("document.querySelector('form[action=compare]').submit()")
        browser.until("location.pathname.endsWith('/compare') && document.readyState === 'complete'")
        names = browser.run("[...document.querySelectorAll('h4')].map((one) => one.textContent)")
        assert {"loss", "accuracy"} <= set(names)
        compared = browser.run("document.getElementById('document').textContent")
        assert [row["name"] for row in json.loads(compared)["inputs"]] == ["word", "rate", "nodes x processes"]
        browser.show(f"{address}runs/{run}")
        check_page(browser, "a served run")


def test_what_has_not_come_into_view_is_printed_too(browser: Chromium, runs: dict[str, Path]) -> None:
    browser.show(runs["sweep"].as_uri(), height=100)
    browser.run("document.querySelectorAll('details').forEach((one) => { one.open = true; }); 0")
    drawn, live = "page.charts.size", "document.querySelectorAll('figure.live').length"
    assert browser.run(drawn) < browser.run(live)
    browser.call("Page.printToPDF")
    assert browser.run(drawn) == browser.run(live)


def test_charts_are_drawn_and_tell_values_zoom_and_smooth(browser: Chromium, runs: dict[str, Path]) -> None:
    browser.show(runs["good"].as_uri(), height=3000)
    logged = "document.querySelectorAll('article > .curves figure[data-lines]').length"
    browser.until(f"page.charts.size === {logged} && page.charts.size")
    titles = browser.run("[...page.charts.values()].map((one) => one.names)")
    assert titles == ["loss,validation_loss", "accuracy", "learning_rate", "images_per_second"]
    axes = browser.run("[...page.charts.values()].map((one) => one.plot.axes.map((axis) => axis.label))")
    assert axes == [["step", None], ["step", "share"], ["step", None], ["step", "images/s"]]
    first = "[...page.charts.values()][0]"
    place = browser.run(
        f"(({{x, y, width, height}}) => [x, y, width, height])({first}.plot.over.getBoundingClientRect())"
    )
    x, y, width, height = place

    def mouse(kind: str, at: float, **more: Any) -> None:
        browser.call("Input.dispatchMouseEvent", type=kind, x=x + width * at, y=y + height / 2, **more)

    mouse("mouseMoved", 0.5)
    caption = "document.querySelector('figure[data-lines] figcaption').textContent"
    browser.until(f"{caption}.startsWith('step 2')")
    mouse("mouseMoved", 0.25)
    mouse("mousePressed", 0.25, button="left", buttons=1, clickCount=1)
    mouse("mouseMoved", 0.5, button="left", buttons=1)
    mouse("mouseReleased", 0.5, button="left", buttons=0, clickCount=1)
    browser.until(f"{first}.plot.scales.x.max < 30 && {first}.plot.scales.x.min > 5")
    browser.run("document.getElementById('unzoom').click()")
    browser.until(f"{first}.plot.scales.x.max === 40")
    browser.run(f"{first}.plot.root.focus()")
    for key, told in {"Home": "step 1 ", "ArrowRight": "step 2 ", "End": "step 40 ", "ArrowLeft": "step 39 "}.items():
        browser.call("Input.dispatchKeyEvent", type="keyDown", key=key)
        browser.until(f"{caption}.startsWith('{told}')")
    for key, fits in {"+": "min > 5", "Escape": "min === 1"}.items():
        browser.call("Input.dispatchKeyEvent", type="keyDown", key=key)
        browser.until(f"{first}.plot.scales.x.{fits}")
    browser.run("document.activeElement.blur()")
    browser.until(f"{caption}.startsWith('loss')")
    assert browser.run("heights(null, 0, 0)") == [0, 1], "what is 0 throughout has no axis to 100"
    browser.run("smoothing.value = 0.9; smoothing.dispatchEvent(new Event('input')); 0")
    assert browser.run(f"{first}.plot.series.length") == 5, "the values as they were logged stay, fainter"
    browser.run("document.querySelector('details.resources').open = true; 0")
    browser.until(f"page.charts.size > {logged}")
    axes = browser.run("[...page.charts.values()].slice(4).map((one) => one.plot.axes.map((axis) => axis.label))")
    assert axes[0] == ["seconds", "cores"]
    browser.run("[...page.charts.values()][4].plot.setCursor({ left: 1, top: 1 }); 0")
    told = browser.run("document.querySelector('.resources figure figcaption').textContent")
    assert told.startswith("seconds "), told
    assert "rank 0" in told
    assert browser.faults == []


def test_the_ends_of_the_logs_can_be_searched_without_a_server(browser: Chromium, runs: dict[str, Path]) -> None:
    browser.show(runs["good"].as_uri())
    browser.run(
        "(input => { input.value = 'RANK 1'; input.dispatchEvent(new Event('input')); })(document.querySelector('.search'))"
    )
    browser.until("document.querySelector('.found').textContent === '1 line in the ends that are here'")
    assert browser.run("[...document.querySelectorAll('mark')].map((one) => one.textContent)") == ["rank 1"]


def test_a_page_follows_its_run_from_the_first_second_to_the_end(browser: Chromium, tmp_path: Path) -> None:
    for pipe in ("go", "end"):
        os.mkfifo(tmp_path / pipe)
    script = (
        f"echo '{json.dumps(LINE | {'step': 1})}' >> outputs/metrics.jsonl; echo begun; cat {tmp_path}/go;"
        f"echo '{json.dumps(LINE | {'step': 2})}' >> outputs/metrics.jsonl; echo more; cat {tmp_path}/end"
    )
    pipeline(tmp_path, f"type: pipeline\njobs: {{train: {step(script)}, use: {step('true')}}}\n")
    home = tmp_path / ".allranks"
    with serving(home) as address:
        browser.show(address)
        assert "No runs yet" in browser.run("document.body.textContent")
        run = subprocess.Popen(command("run", "pipeline.yaml"), cwd=tmp_path, env=environ(), stdout=subprocess.DEVNULL)
        try:
            browser.until("document.querySelectorAll('td a').length === 1")
            browser.run("document.querySelector('td a').click()")
            browser.until("document.querySelector('article h3')?.textContent === 'train running'")
            browser.run("document.querySelector('.log').open = true; 0")
            browser.run("window.same = true; 0")
            (tmp_path / "go").write_text("")
            browser.until("page.document.steps.train.curves?.loss?.length === 2")
            browser.until("document.querySelector('.log pre').textContent === 'begun\\nmore\\n'")
            browser.until("page.charts.size === 1")
            assert browser.run("document.querySelector('.log').open"), "what was opened stays open"
            (tmp_path / "end").write_text("")
            browser.until("document.getElementById('status').textContent === 'succeeded'")
            assert browser.run("window.same"), "it was never loaded again"
            assert run.wait() == 0
        finally:
            run.kill()
            run.wait()
        assert browser.faults == []


LINE = {"metrics": {"loss": 0.5}}
