"""The ranks of a run find the bytecode of their modules, and never that of another text."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from allranks.local.bytecode import add_bytecode
from allranks.local.snapshot import SnapshotFile
from tests.local.support import allranks


def laid(tmp_path: Path, text: str, *, works: int = 1) -> list[Path]:
    """Working folders of nodes with a module ``helper`` of this text, and its bytecode."""
    folders = []
    for node in range(works):
        folder = tmp_path / f"node{node}"
        folder.mkdir(exist_ok=True)
        (folder / "helper.py").write_text(text)
        folders.append(folder)
    add_bytecode([SnapshotFile("helper.py", folders[0] / "helper.py")], folders, tmp_path / "kept")
    return folders


def imported(folder: Path, *lines: str) -> str:
    """What a new interpreter there prints; what it compiles it says itself."""
    script = "\n".join(["import builtins, sys", *lines])
    done = subprocess.run([sys.executable, "-v", "-c", script], cwd=folder, capture_output=True, text=True, check=True)
    compiled = "code object from" in done.stderr.partition("helper.py")[0].rpartition("\n")[2]
    return f"{done.stdout.strip()} {'compiled' if compiled else 'found'}"


SHOW = "import helper; print(helper.value, helper.f.__code__.co_filename == helper.__file__)"


def test_each_node_finds_what_was_compiled_once(tmp_path: Path) -> None:
    folders = laid(tmp_path, "value = 1\ndef f(): pass\n", works=2)
    assert [imported(folder, SHOW) for folder in folders] == ["1 True found"] * 2
    assert len(list((tmp_path / "kept").iterdir())) == 1


def test_a_text_that_a_rank_has_changed_is_compiled(tmp_path: Path) -> None:
    (folder,) = laid(tmp_path, "value = 1\ndef f(): pass\n")
    change = "open('helper.py', 'w').write('value = 2\\ndef f(): pass\\n')"
    assert imported(folder, change, SHOW) == "2 True compiled"


def test_where_nothing_can_be_kept_ranks_compile(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("")
    (folder,) = laid(tmp_path, "value = 1\ndef f(): pass\n")
    assert imported(folder, SHOW) == "1 True compiled"


def test_the_ranks_of_a_run_find_it(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("value = 1\n")
    (tmp_path / "script.py").write_text(
        "import importlib.util, os\nprint(os.path.exists(importlib.util.cache_from_source('helper.py')))\nimport helper\n"
    )
    done = allranks("run", "script.py", "--json", cwd=tmp_path)
    folder = Path(json.loads(done.stdout)["run_dir"])
    (log,) = folder.glob("steps/*/user_logs/std_log*")
    assert log.read_text() == "True\n"
