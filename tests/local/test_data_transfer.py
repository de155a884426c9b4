"""Copies: what goes where, what wins, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.local.support import allranks, pipeline, run_json

COPY = "type: data_transfer, task: copy_data"


def _data(folder: Path) -> None:
    for path, text in {"x/a": "1", "x/sub/b": "2", "y/a": "3", "z/sub": "4"}.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)


def _run(folder: Path, mode: str, inputs: str, output: str = "uri_folder") -> dict:
    _data(folder)
    text = f"""
        type: pipeline
        outputs: {{copied: {{type: {output}}}}}
        jobs:
          copy: {{{COPY}, {mode} inputs: {{{inputs}}}, outputs: {{out: '${{{{parent.outputs.copied}}}}'}}}}
        """
    return run_json(pipeline(folder, text), cwd=folder)


def _folder(path: str) -> str:
    return f"{{type: uri_folder, path: ./{path}}}"


def test_folders_are_merged_and_the_later_input_wins(tmp_path):
    inputs = f"one: {_folder('x')}, two: {_folder('y')}, three: {{type: uri_file, path: ./x/sub/b}}"
    result = _run(tmp_path, "data_copy_mode: merge_with_overwrite,", inputs)
    found = Path(result["outputs"]["copied"])
    files = {one.relative_to(found).as_posix(): one.read_text() for one in found.rglob("*") if one.is_file()}
    assert files == {"a": "3", "sub/b": "2", "b": "2"}


def test_a_file_is_copied_to_a_file(tmp_path):
    result = _run(tmp_path, "", "one: {type: uri_file, path: ./y/a}", "uri_file")
    assert Path(result["outputs"]["copied"]).read_text() == "3"


@pytest.mark.parametrize(
    ("mode", "other", "why"),
    [
        ("data_copy_mode: fail_if_conflict,", "y", "a (of one and two): there twice, and data_copy_mode is fail_if_conflict"),
        ("", "y", "a (of one and two): there twice"),
        ("data_copy_mode: merge_with_overwrite,", "z", "sub: a file in one input and a folder in another"),
    ],
)  # fmt: skip
def test_conflicts_are_named_and_nothing_is_copied(tmp_path, mode, other, why):
    result = _run(tmp_path, mode, f"one: {_folder('x')}, two: {_folder(other)}")
    assert (result["exit"], result["outputs"]) == (1, {})
    assert why in result["steps"]["copy"]["failure"]["last_lines"][-1]


def test_a_component_runs_by_itself_and_its_mistakes_are_named(tmp_path):
    _data(tmp_path)
    ports = "inputs: {one: {type: uri_folder}, two: {type: uri_folder}}\noutputs: {out: {type: uri_folder}}\n"
    text = "type: data_transfer\nname: merge\ntask: copy_data\ndata_copy_mode: merge_with_overwrite\n"
    file = tmp_path / "merge.yaml"
    file.write_text(text + ports)
    result = run_json(file, "one=x", "two=z/sub", cwd=tmp_path)
    assert result["exit"] == 2  # sub is a file, and the input a folder
    assert Path(run_json(file, "one=x", "two=y", cwd=tmp_path)["outputs"]["out"], "a").read_text() == "3"
    for right, wrong, message in (
        ("copy_data", "copydata", "'copydata' is no task of a data_transfer (did you mean"),
        ("merge_with_overwrite", "merge", "data_copy_mode: 'merge' is none of the modes"),
        ("out: {type: uri_folder}", "out: {type: uri_file}", "several inputs go into a uri_folder"),
        (", two: {type: uri_folder}}\noutputs: {out: {type: uri_folder", "}\noutputs: {out: {type: uri_file", "both have to be of one type"),
        ("out: {type: uri_folder}", "", "has 0 outputs; a data_transfer copies into one"),
        ("copy_data", "import_data", "cannot run here: a component is a data_transfer of task 'import_data'; copy_data can."),
    ):  # fmt: skip
        assert right in text + ports
        file.write_text((text + ports).replace(right, wrong, 1))
        said = allranks("lint", file, cwd=tmp_path).stdout
        assert message.split(" (did")[0] in said, said


def test_a_copy_that_is_no_step_is_refused_as_azure_ml_refuses_it(tmp_path):
    inputs = "one: {type: uri_folder, path: ./x}"
    text = f"type: data_transfer\ntask: copy_data\ncompute: azureml:f\ninputs: {{{inputs}}}\noutputs: {{out: {{type: uri_folder}}}}\n"
    (tmp_path / "copy.yml").write_text(text)
    refused = allranks("run", "copy.yml", cwd=tmp_path)
    assert refused.returncode == 2
    assert "is a data_transfer job by itself; Azure ML takes one as a step of a pipeline only." in refused.stderr
