"""The exported YAML loads in the SDK, and says the same as the Python pipeline."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
from azure.ai.ml import load_job

from allranks.azure import reader
from allranks.azure.export import export_pipeline
from allranks.cli.main import main

SAMPLES = Path(__file__).parent / "samples" / "pipelines.py"


def test_all_kinds_of_steps_load_in_the_sdk(tmp_path: Path) -> None:
    files = export_pipeline(f"{SAMPLES}:everything", tmp_path / "out" / "everything.yaml")
    assert [file.name for file in files] == ["everything.yaml", "everything.inner.yaml"]
    for file, text in files.items():
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    job = load_job(tmp_path / "out" / "everything.yaml")
    assert job._validate().error_messages == {}
    rest = job._to_rest_object().as_dict()["properties"]
    assert rest["inputs"]["start"] == {"value": "2", "jobInputType": "literal"}
    assert "extra" not in rest["inputs"], "an optional input without a value is not sent"
    assert rest["jobs"].keys() == {"first", "second", "third"}
    assert job.jobs["first"].component.jobs["add"].resources.instance_count == "${{parent.inputs.start}}"


def test_the_command_writes_the_file_and_names_the_next_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "new" / "small.yaml"
    assert main(["export", f"{SAMPLES}:small", "-o", str(output)]) == 0
    assert f"az ml job create --file {output}" in capsys.readouterr().out
    assert load_job(output).jobs.keys() == reader.read_function(SAMPLES, "small", {})["jobs"].keys()
    capsys.readouterr()
    assert main(["export", f"{SAMPLES}:small", "-o", str(output), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["files"] == [str(output)]


def test_what_is_no_python_pipeline_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "image_classification"]) == 2
    assert "It is YAML already" in capsys.readouterr().err
    assert main(["export", f"{SAMPLES}:small", "-o", "/proc/no/such.yaml"]) == 2
    assert "Cannot write /proc/no" in capsys.readouterr().err


def test_sweeps_are_sent_as_the_python_pipeline_would_send_them(tmp_path: Path) -> None:
    file = tmp_path / "tuned.yaml"
    for path, text in export_pipeline(f"{SAMPLES}:tuned", file).items():
        path.write_text(text)
    job = load_job(file)
    assert job._validate().error_messages == {}
    spec = importlib.util.spec_from_file_location("samples", SAMPLES)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    theirs, ours = (one._to_rest_object().as_dict()["properties"]["jobs"] for one in (module.tuned(), job))
    assert theirs["search"]["sampling_algorithm"]["rule"] == "sobol"
    for name in ("search", "grid"):
        for key in theirs[name].keys() - {"trial", "inputs", "_source"}:  # where it was read from
            assert ours[name][key] == theirs[name][key], (name, key)
        mine, yours = (one[name]["trial"]["properties"]["componentSpec"] for one in (ours, theirs))
        for key in ("command", "distribution", "resources", "inputs", "outputs"):
            assert mine[key] == yours[key], (name, key)
