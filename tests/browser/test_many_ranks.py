"""The page of a step with many ranks, of which one has failed."""

from __future__ import annotations

from pathlib import Path

import pytest

from allranks.local.folders import RunsHome
from tests.browser.chromium import Chromium
from tests.browser.test_pages import check_page
from tests.local.test_many_ranks import run_many

pytestmark = pytest.mark.slow

OPEN = "[...document.querySelectorAll('.log')].filter((one) => one.checkVisibility() && one.open).map((one) => one.dataset.log)"
SEEN = "document.querySelectorAll('.log:not([hidden])').length"


def test_one_click_or_one_word_leads_to_the_rank_that_failed(browser: Chromium, tmp_path: Path) -> None:
    run_many(tmp_path, 32, 2, 41)
    page = RunsHome(tmp_path / ".allranks").find("latest").report.as_uri()
    browser.show(page, width=400)
    check_page(browser, "many ranks on a telephone")
    browser.show(page)
    assert browser.run("document.documentElement.scrollHeight") < 2500
    assert browser.run(SEEN) == 64
    browser.run("document.querySelector('p.failed a').click()")
    browser.until(f"{OPEN}.length")
    assert browser.run(OPEN) == ["std_log_process_41.txt"]
    place = "document.getElementById('log-train-std_log_process_41.txt').getBoundingClientRect()"
    assert browser.run(f"{place}.top >= 0 && {place}.top < innerHeight")
    search = "const at = document.querySelector('.search'); at.value = '{}'; at.dispatchEvent(new Event('input'));"
    browser.run(f"(() => {{ {search.format('broken disk')} }})()")
    browser.until(f"{SEEN} === 1")
    assert browser.run(OPEN) == ["std_log_process_41.txt"]
    browser.run(f"(() => {{ {search.format('')} }})()")
    browser.until(f"{SEEN} === 64")
