"""``python -m tests.browser.pictures``: the pictures in docs/pictures, of runs that are run for them."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.browser.chromium import chromium, find_chromium
from tests.browser.demo import make_runs

FOLDER = Path(__file__).parents[2] / "docs" / "pictures"
VIEWS = {  # name: the page, its width, dark or light, and what is scrolled to
    "run": ("good", 1100, False, "main"),
    "run-dark": ("good", 1100, True, "article"),
    "run-narrow": ("good", 400, False, "article"),
    "failed": ("failed", 1100, False, "main"),
    "sweep": ("sweep", 1100, False, ".trials"),
    "compare": ("compare", 1100, False, "main"),
}


def main() -> None:
    program = find_chromium()
    if program is None:
        sys.exit("no Chromium is found on PATH, and CHROMIUM names none")
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="demo-") as folder, chromium(program) as browser:
        runs = make_runs(Path(folder))
        for name, (kind, width, dark, place) in VIEWS.items():
            browser.show(runs[kind].as_uri(), width=width, height=900, dark=dark)
            browser.run(f"document.querySelector('{place}').scrollIntoView(); scrollBy(0, -16); 0")
            drawn = "document.querySelectorAll('figure.drawn').length || !document.querySelector('figure[data-lines]')"
            browser.until(drawn)
            browser.run("new Promise((done) => setTimeout(done, 300))")
            browser.picture(FOLDER / f"{name}.png", whole=False)


if __name__ == "__main__":
    main()
