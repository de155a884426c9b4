"""What a snapshot takes: no runs folder, and a word about what a step hardly needs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from allranks.errors import StorageError, UsageError
from allranks.local.folders import StepFolder
from allranks.local.heavy import LARGEST_SNAPSHOT, heavy_snapshots
from allranks.local.node_folders import lay_out_nodes
from allranks.local.snapshot import copied_hash, copy_snapshot, snapshot_files
from allranks.spec import Component, Source
from tests.local.support import pipeline, run_json, step


@pytest.mark.parametrize("runs", [".allranks", "kept/runs"])
def test_a_runs_folder_is_no_part_of_the_code_that_it_lies_in(tmp_path, runs):
    file = pipeline(tmp_path, f"type: pipeline\njobs: {{one: {step('ls -A', more='code: .')}}}\n")
    first = run_json(file, "--runs-dir", tmp_path / runs, cwd=tmp_path)
    (tmp_path / runs / "mlflow.db").touch()
    second = run_json(file, "--runs-dir", tmp_path / runs, cwd=tmp_path)
    assert second["steps"]["one"]["reused"], "the snapshot has not changed"
    taken = Path(first["run_dir"], "steps/one/snapshot").rglob("*")
    assert [path.name for path in taken if path.is_file()] == ["pipeline.yaml"]


def component(folder: Path, **sizes: int) -> Component:
    for name, size in sizes.items():
        path = folder / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            file.truncate(size)
    return Component(name="mine", source=Source(folder / "component.yaml", folder), code=folder)


def test_a_snapshot_of_more_than_100_mb_is_warned_of(tmp_path):
    usual = component(tmp_path, train_dot_py=2000, model_dot_pt=1000, data__x_dot_csv=LARGEST_SNAPSHOT - 3000)
    assert heavy_snapshots([usual]) == []
    (problem,) = heavy_snapshots([component(tmp_path, data__y_dot_csv=1), usual])
    assert problem.severity == "warning"
    assert problem.message == "the snapshot of mine, 100.0 MB in 4 files, holds much: data/ (100.0 MB)."
    assert problem.hint.endswith(f"in {tmp_path}/.amlignore leave out what the step does not need: '/data/'.")
    (tmp_path / ".gitignore").write_text("/data/\n")
    assert heavy_snapshots([usual]) == []


GROWS = """
import sys
with open("train.log", "ab") as log:
    print("ready", flush=True)
    while True:
        log.write(b"another line" * 1000)
        log.flush()
        if log.tell() > 1_000_000:
            log.truncate(7)
"""


def test_files_that_links_bring_from_outside_are_named(tmp_path):
    """azure-ai-ml follows links too, and uploads what they lead to."""
    (tmp_path / "key").write_text("secret")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    (tmp_path / "code").mkdir()
    inside = component(tmp_path / "code", script_dot_py=1)
    (inside.code / "same.py").symlink_to("script.py")
    assert heavy_snapshots([inside]) == []
    (inside.code / "key").symlink_to(tmp_path / "key")
    (inside.code / "folder").symlink_to(tmp_path / "other")
    (problem,) = heavy_snapshots([inside])
    assert problem.severity == "warning"
    assert f"folder/file -> {tmp_path}/other/file, key -> {tmp_path}/key." in problem.message
    (inside.code / ".amlignore").write_text("key\n")
    (inside.code / "folder").unlink()
    assert heavy_snapshots([inside]) == []


def test_a_log_that_grows_in_the_code_folder_fails_no_run(tmp_path):
    (tmp_path / "code").mkdir()
    code = tmp_path / "code"
    (code / "main.py").write_text("print(open('train.log').read(7))")
    writer = subprocess.Popen([sys.executable, "-c", GROWS], cwd=code, stdout=subprocess.PIPE)
    try:
        assert writer.stdout is not None
        writer.stdout.readline()
        for _ in range(3):
            result = run_json("main.py", cwd=code)
            assert result["exit"] == 0, result
    finally:
        writer.kill()
        writer.wait()


def test_files_may_change_appear_and_go_at_any_moment(tmp_path):
    """Between the list of the files, their copy and the start of the ranks; the run keeps what it has copied."""
    (tmp_path / "code" / "pkg").mkdir(parents=True)
    for name in ("main.py", "edited.txt", "gone.txt", "pkg/gone.py"):
        (tmp_path / "code" / name).write_text("before")
    files = snapshot_files(Component(name="mine", source=Source(None, tmp_path), code=tmp_path / "code"))
    shutil.rmtree(tmp_path / "code/pkg")
    (tmp_path / "code/gone.txt").unlink()
    (tmp_path / "code/edited.txt").write_text("after the list")
    (tmp_path / "code/new.txt").touch()
    folder = StepFolder(tmp_path / "step")
    copied = copy_snapshot(files, folder.snapshot)
    content = copied_hash(copied, folder.snapshot)
    (tmp_path / "code/edited.txt").write_text("after the copy")
    lay_out_nodes(folder, copied, content, nodes=2)
    assert [file.path for file in copied] == ["edited.txt", "main.py"]
    assert {(folder.work(node) / "edited.txt").read_text() for node in (0, 1)} == {"after the list"}
    (folder.snapshot / "main.py").write_text("something else")
    with pytest.raises(OSError, match="were changed since the run began"):
        lay_out_nodes(folder, copied, content, nodes=2)


def test_the_code_may_be_deleted_while_its_step_waits(tmp_path):
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "two.py").write_text("print('two')")
    one, two = (
        step("rm -r $CODE", more="environment_variables: {CODE: %s}" % (tmp_path / "code")),
        step("python two.py", more="code: ./code", inputs='after: "${{parent.jobs.one.outputs.out}}"'),
    )
    one = one.replace("outputs: {}", "outputs: {out: {type: uri_folder}}")
    file = pipeline(tmp_path, f"type: pipeline\njobs: {{one: {one}, two: {two}}}")
    result = run_json(file, cwd=tmp_path)
    assert result["exit"] == 0, result["steps"]["two"]["failure"]


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    (tmp_path / "code").mkdir()
    (tmp_path / "code/main.py").touch()
    files = snapshot_files(Component(name="mine", source=Source(None, tmp_path), code=tmp_path / "code"))
    (tmp_path / "code/main.py").unlink()
    (tmp_path / "code/main.py").mkdir()
    with pytest.raises(
        StorageError, match=r"Cannot copy \S+/code/main.py to the snapshot .*: Is a directory"
    ) as caught:
        copy_snapshot(files, tmp_path / "copy")
    assert "name it in .amlignore" in caught.value.hint


def test_what_is_not_utf_8_is_named(tmp_path):
    (tmp_path / ".gitignore").write_bytes("# Schlüssel\n".encode("latin-1"))
    with pytest.raises(UsageError, match=r"\.gitignore is not UTF-8 text: byte 6"):
        snapshot_files(component(tmp_path))
    (tmp_path / ".gitignore").unlink()
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xfc.txt")).touch()
    with pytest.raises(StorageError, match="is not UTF-8"):
        snapshot_files(component(tmp_path))
