"""`mode: download`: a step writes to a copy of its input, and nothing of the user's changes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from allranks.local import downloads
from allranks.local.downloads import copy_inputs, unchanged_inputs
from allranks.local.fingerprint import tree_fingerprint
from tests.local.support import pipeline, run_json, step

WRITES = "echo more >> ${{inputs.data}}/a; rm ${{inputs.data}}/b/c; ls -R ${{inputs.data}} > ${{outputs.out}}"
FILE = "test -w ${{inputs.one}}; cat ${{inputs.one}} $AZURE_ML_INPUT_one > ${{outputs.out}}; echo x > ${{inputs.one}}"
OUT = "out: {type: uri_file}"
CAN_LOCK = subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode == 0


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "data" / "b").mkdir(parents=True)
    (tmp_path / "data" / "a").write_text("a\n")
    (tmp_path / "data" / "b" / "c").write_text("c\n")
    (tmp_path / "data" / "link").symlink_to("a")
    (tmp_path / "data" / "broken").symlink_to("nowhere")
    return tmp_path / "data"


def test_a_step_writes_to_a_copy_however_the_mode_is_said(data: Path, tmp_path: Path) -> None:
    before = tree_fingerprint(data)
    file = pipeline(
        tmp_path,
        f"""
        type: pipeline
        inputs:
          given: {{type: uri_folder, path: ./data, mode: download}}
          plain: {{type: uri_folder, path: ./data}}
        jobs:
          own: {step(WRITES, inputs="data: {type: uri_folder, path: ./data, mode: download}", outputs=OUT)}
          bound: {step(WRITES, inputs="data: '${{parent.inputs.given}}'", outputs=OUT)}
          said: {step(WRITES, inputs="data: {path: '${{parent.inputs.plain}}', mode: download}", outputs=OUT)}
          after: {step(FILE, inputs="one: {path: '${{parent.jobs.own.outputs.out}}', mode: download}", outputs=OUT)}
        """,
    )
    result = run_json(file, cwd=tmp_path)
    assert result["exit"] == 0, result
    assert tree_fingerprint(data) == before
    listed = Path(result["steps"]["own"]["outputs"]["out"]).read_text()
    assert Path(result["steps"]["after"]["outputs"]["out"]).read_text() == 2 * listed
    assert not list((tmp_path / ".allranks").glob("runs/*/steps/*/nodes/inputs")), "copies go with the step's end"
    assert all(one["reused"] for one in run_json(file, cwd=tmp_path)["steps"].values())


def test_a_step_that_says_ro_mount_may_not_write(data: Path, tmp_path: Path) -> None:
    inputs = "data: {path: '${{parent.inputs.given}}', mode: ro_mount}"
    file = pipeline(
        tmp_path,
        f"""
        type: pipeline
        inputs: {{given: {{type: uri_folder, path: ./data, mode: download}}}}
        jobs: {{mounted: {step("set -e; " + WRITES, inputs=inputs, outputs=OUT)}}}
        """,
    )
    before = tree_fingerprint(data)
    failure = run_json(file, cwd=tmp_path)["steps"]["mounted"]["failure"]
    assert f"wrote to its input {data}" in failure["message"]
    if CAN_LOCK:  # then it ended at once, by its own error, and the data are as they were
        assert "ended with exit code" in failure["message"]
        assert "set mode: download" in failure["message"]
        assert tree_fingerprint(data) == before


def test_what_is_too_large_is_not_copied(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {data: tree_fingerprint(data)}
    assert copy_inputs({"x": data, "y": data}, {"x"}, files, tmp_path / "copies") == {"x": tmp_path / "copies" / "x"}
    monkeypatch.setattr(downloads, "COPIED_BYTES", 3)
    assert copy_inputs({"x": data}, {"x"}, files, tmp_path / "others") == {}


def test_links_to_a_folder_that_contains_them_are_not_followed(tmp_path: Path) -> None:
    """Two links to `.` are 2^40 ways to the same file: the engine looked at all of them, and never came back."""
    data = tmp_path / "data"
    (data / "sub").mkdir(parents=True)
    (data / "sub" / "a").write_text("a")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "back").symlink_to("../data")
    for link, target in (("one", "."), ("two", "."), ("sub/up", ".."), ("out", "../other"), ("twin", "sub")):
        (data / link).symlink_to(target)
    assert [name for name, *_ in tree_fingerprint(data)] == ["sub/a", "twin/a"]
    copies = copy_inputs({"data": data}, ["data"], {data: tree_fingerprint(data)}, tmp_path / "copies")
    copied = {path.relative_to(copies["data"]).as_posix() for path in copies["data"].rglob("*") if path.is_file()}
    assert copied == {"sub/a", "twin/a"}


@pytest.mark.skipif(CAN_LOCK, reason="it cannot change it here")
def test_an_input_that_an_attempt_has_changed_is_not_what_the_next_one_is_given(tmp_path: Path) -> None:
    """The first attempt wrote and failed, the second one succeeded, and its result was kept as that of the old data."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a").touch()
    writes = step(
        "mv ${{inputs.data}}/a ${{inputs.data}}/b", inputs="data: {type: uri_folder, path: ./data}", outputs=OUT
    )
    file = pipeline(tmp_path, f"type: pipeline\njobs: {{one: {writes.replace('/b', '/b && false')}}}\n")
    one = run_json(file, "--retries", "1", cwd=tmp_path)["steps"]["one"]
    assert one["attempts"] == 2
    assert "data has changed since an earlier attempt began" in one["failure"]["message"]
    first = run_json(file, cwd=tmp_path)["steps"]["one"]["failure"]["message"]
    assert "wrote to its input" not in first, "there is nothing left to be moved"
    (tmp_path / "data" / "a").touch()
    assert (
        f"wrote to its input {tmp_path / 'data'}" in run_json(file, cwd=tmp_path)["steps"]["one"]["failure"]["message"]
    )


def test_an_input_that_has_changed_while_the_step_waited_is_not_taken_for_what_it_was(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    known = {tmp_path: tree_fingerprint(tmp_path)}
    assert unchanged_inputs([tmp_path], known, {}) == known
    (tmp_path / "a").write_text("22")
    with pytest.raises(OSError, match="has changed since this run looked at it"):
        unchanged_inputs([tmp_path], known, {})


def test_pipes_and_sockets_are_no_artifacts(tmp_path: Path) -> None:
    """A pipe in ``outputs`` ended the whole run, as a runs folder that cannot be written."""
    leaves = step("mkfifo outputs/pipe; echo 1 > outputs/kept", outputs="artifacts: {type: uri_folder}")
    one = run_json(pipeline(tmp_path, f"type: pipeline\njobs: {{one: {leaves}}}\n"), cwd=tmp_path)["steps"]["one"]
    assert one["status"] == "succeeded", one
    assert [path.name for path in Path(one["outputs"]["artifacts"], "outputs").iterdir()] == ["kept"]
