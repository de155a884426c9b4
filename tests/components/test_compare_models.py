"""compare_models: what mldesigner compiles is what is registered, the best is found, wrong use is explained."""

from __future__ import annotations

import csv
import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.blob_mount import BlobFaults, blob_mount, can_mount
from tests.local.support import pipeline, run_json

COMPONENT = Path(__file__).parents[2] / "components/compare_models"


def evaluation(folder: Path, **metrics: float) -> Path:
    folder.mkdir()
    (folder / "metrics.json").write_text(json.dumps(metrics))
    return folder


def compare(folder: Path, inputs: str):
    return run_json(
        pipeline(
            folder,
            f"type: pipeline\njobs:\n  compare:\n    component: {COMPONENT}/component.yaml\n    inputs: {{{inputs}}}\n",
        ),
        cwd=folder,
    )


@pytest.mark.slow
def test_the_yaml_is_what_mldesigner_compiles(tmp_path):
    (tmp_path / "compare_models.py").write_bytes((COMPONENT / "compare_models.py").read_bytes())
    tool = Path(sys.executable).parent / "mldesigner"
    command = [tool, "compile", "--source", "compare_models.py", "--output", "out"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    compiled = yaml.safe_load((tmp_path / "out/compare_models/compare_models.yaml").read_text())
    assert compiled == yaml.safe_load((COMPONENT / "component.yaml").read_text())


@pytest.mark.slow
def test_the_best_is_named_and_every_number_kept(tmp_path):
    evaluation(tmp_path / "a", accuracy=0.97, loss=0.00001, ece=math.nan)
    evaluation(tmp_path / "b", accuracy=0.98, loss=0.2, macro_f1=0.5)
    odd = r"$\frac$ ddp"  # no formula
    inputs = (
        f"evaluation_1: {{type: uri_folder, path: a}}, evaluation_4: {{type: uri_folder, path: b}}, names: '{odd}, <b>'"
    )
    step = compare(tmp_path, inputs)["steps"]["compare"]
    report = Path(step["outputs"]["report"])
    document = json.loads((report / "comparison.json").read_text())
    assert document["best"] == {"name": "<b>", "accuracy": 0.98}
    assert [model["name"] for model in document["models"]] == ["<b>", odd]
    assert step["metrics"] == {"accuracy": 0.98}
    with (report / "comparison.csv").open() as file:
        assert next(csv.DictReader(file)) == {"model": "<b>", "accuracy": "0.98", "loss": "0.2", "macro_f1": "0.5"}
    page = (report / "index.html").read_text()
    assert "&lt;b&gt;" in page
    assert "<td><b>" not in page
    assert "<td>0.9700</td><td>1e-05</td><td>&ndash;</td>" in page, "what is small is no 0, what is missing is said"
    assert "nan" not in page.lower().replace("dominant", "")
    assert "NaN" not in (report / "comparison.json").read_text()


@pytest.mark.slow
def test_wrong_use_is_one_message(tmp_path):
    failure = compare(tmp_path, "metric: accuracy")["steps"]["compare"]["failure"]
    text = "\n".join(failure["last_lines"])
    assert "nothing to compare" in text
    assert "evaluation_8" in text
    assert "Traceback" not in text


@pytest.mark.parametrize(
    ("folders", "names", "metric", "message"),
    [
        ("a", "-", "recall", "'recall'.*accuracy, loss"),
        ("a", "x,y", "accuracy", "2 different names for 1 evaluations"),
        (".", "-", "accuracy", "metrics.json cannot be read"),
        ("b", "-", "accuracy", "metrics.json holds no metrics by name"),
    ],
)
def test_what_cannot_be_compared_is_refused(tmp_path, folders, names, metric, message):
    from components.compare_models import compare_models

    evaluation(tmp_path / "a", accuracy=0.97, loss=0.1)
    (evaluation(tmp_path / "b") / "metrics.json").write_text("[0.97]")
    with pytest.raises(ValueError, match=message):
        compare_models.rank(compare_models.read([tmp_path / folders], names), metric, "maximize")


@pytest.mark.skipif(not can_mount(), reason="mounting with FUSE needs root and /dev/fuse")
def test_on_a_mount_what_fails_for_a_moment_is_tried_again(tmp_path, monkeypatch):
    from components.compare_models import compare_models

    monkeypatch.setattr(compare_models, "PAUSES", (0.001,) * 4)
    with blob_mount(tmp_path, BlobFaults(first=True, direct=True)) as mount:
        behind = tmp_path / "behind"
        for name in "ab":
            evaluation(behind / name, accuracy=float(ord(name)))
        ranked = compare_models.rank(compare_models.read([mount / "a", mount / "b"], "-"), "accuracy", "maximize")
        compare_models.write(mount / "report", ranked, "accuracy", "maximize")
        assert json.loads((behind / "report" / "comparison.json").read_text())["best"]["name"] == "evaluation_2"
        assert (behind / "report" / "comparison.png").read_bytes().startswith(b"\x89PNG")
