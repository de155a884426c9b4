"""Files that are written whole or not at all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from allranks.files import write_text
from tests.helpers import ROOT

FULL = """
import resource, sys
from pathlib import Path
from allranks.files import write_text
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
write_text(Path(sys.argv[1]), "x" * 1000)
"""


def test_a_disk_that_is_full_leaves_the_file_that_was_there(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    write_text(file, "before")
    done = subprocess.run([sys.executable, "-c", FULL, file], cwd=ROOT, capture_output=True, text=True, check=False)
    assert "File too large" in done.stderr
    assert file.read_text() == "before"
    assert list(tmp_path.iterdir()) == [file]


def test_a_link_stays_one_and_what_is_no_file_is_written_to(tmp_path: Path) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    link.symlink_to(file)
    write_text(link, "through")
    assert link.is_symlink()
    assert file.read_text() == "through"
    write_text(Path("/dev/null"), "nothing")
