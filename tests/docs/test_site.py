"""The docs site is built strictly, and each page is reached from its first."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers import ROOT
from tests.waiting import TIMEOUT


@pytest.mark.slow
def test_the_site_has_no_warning_and_every_page(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-W",
        "--keep-going",
        "-q",
        "-d",
        str(tmp_path / "read"),
        "docs",
        str(tmp_path / "site"),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert done.returncode == 0, done.stderr
    pages = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    made = {path.relative_to(tmp_path / "site") for path in (tmp_path / "site").rglob("*.html")}
    assert pages <= made
    front = (tmp_path / "site" / "index.html").read_text()
    linked = set(re.findall(r'href="([^"#]+\.html)"', front))
    assert {str(page) for page in pages} <= linked | {"index.html"}
    outside = re.findall(r'(?:src|href)="(https?:[^"]+)"', front)
    assert [
        link
        for link in outside
        if not re.match(r"https://(github\.com|www\.sphinx-doc\.org|pradyunsg\.me|.*azure)", link)
    ] == []
