"""``python -m tests.browser.pictures``: the pictures in docs/pictures, of runs that are run for them."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.browser.chromium import Chromium, chromium, find_chromium
from tests.browser.conftest import serving
from tests.browser.demo import make_runs
from tests.local.support import command, environ

FOLDER = Path(__file__).parents[2] / "docs" / "pictures"
PLACES = {"run": "main", "failed": "main", "running": "main", "sweep": ".trials", "compare": "main"}
"""The pages, and what is scrolled to."""
OF_ONE_STEP = "article"  # what of the run is shown in the dark and on a telephone
DRAWN = """[...document.querySelectorAll("figure[data-lines]")].every((one) =>
  one.querySelector("canvas") || !one.checkVisibility() || one.getBoundingClientRect().top > innerHeight)"""
LOOKS = {"": (1100, False), "-dark": (1100, True), "-narrow": (400, False)}


@contextmanager
def halfway(folder: Path, browser: Chromium) -> Iterator[str]:
    """The address of a run that stands in the middle of its training."""
    arguments = ("run", "good.yaml", "word=halfway", "rate=0.15", "--no-cache")
    started = subprocess.Popen(command(*arguments), cwd=folder, env=environ(), stdout=subprocess.DEVNULL)
    try:
        with serving(folder / ".allranks") as address:
            browser.show(address)
            browser.until("document.querySelectorAll('td.running').length")
            page = browser.run("document.querySelector('td.running').closest('tr').querySelector('a').href")
            browser.show(page)
            browser.until("page.document.steps.train.curves?.loss?.length === 24")
            yield page
    finally:
        started.send_signal(signal.SIGINT)
        started.wait()


def take_pictures(browser: Chromium, name: str, address: str) -> None:
    """Take those of one page."""
    for look, (width, dark) in LOOKS.items():
        browser.show(address, width=width, height=900, dark=dark)
        place = OF_ONE_STEP if look and name == "run" else PLACES[name]
        browser.run(f"document.querySelector('{place}').scrollIntoView(); scrollBy(0, -16); 0")
        browser.until(DRAWN)
        browser.run("new Promise((done) => setTimeout(done, 300))")
        browser.picture(FOLDER / f"{name}{look}.png", whole=False)


def main() -> None:
    program = find_chromium()
    if program is None:
        sys.exit("no Chromium is found on PATH, and CHROMIUM names none")
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="demo-") as made, chromium(program) as browser:
        folder = Path(made)
        runs = make_runs(folder)
        for name, page in {"run": "good", "failed": "failed", "sweep": "sweep", "compare": "compare"}.items():
            take_pictures(browser, name, runs[page].as_uri())
        with halfway(folder, browser) as address:
            take_pictures(browser, "running", address)


if __name__ == "__main__":
    main()
