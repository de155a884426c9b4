"""evaluate with real ranks and a trained model: the same predictions on any number of them, checked by scikit-learn."""

from __future__ import annotations

import base64
import csv
import io
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn import metrics as reference

from shared.data import Dataset, batches
from shared.models import ModelCard, NormalisedModel, build_network, load_model, save_model
from tests.blob_mount import BlobFaults, blob_mount, can_mount
from tests.components.support import Finished, run_component

PICTURES = {"confusion_matrix.png", "roc.png", "calibration.png"}
FILES = {"index.html", "metrics.json", "worst_rows.json", "predictions.csv", "classes.csv"} | PICTURES


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    finished = run_component("prepare_data", "--output-data", folder, folder=folder)
    assert finished.ok, finished.output
    return folder


@pytest.fixture(scope="module")
def model(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An MLP that three epochs have made good, not perfect."""
    folder = tmp_path_factory.mktemp("model")
    dataset = Dataset.open(data)
    module, card = fresh(dataset)
    train, optimizer = dataset.split("train"), torch.optim.AdamW(module.parameters(), 3e-3)
    for epoch in range(3):
        for rows in batches(train.rows, batch_size=64, seed=0, epoch=epoch):
            taken = train.take(rows)
            loss = torch.nn.functional.cross_entropy(module(torch.from_numpy(taken["x"])), torch.from_numpy(taken["y"]))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    save_model(folder, module, card)
    return folder


def fresh(dataset: Dataset, classes: tuple[str, ...] | None = None) -> tuple[NormalisedModel, ModelCard]:
    index = dataset.index
    shape, statistics, classes = index.arrays["x"].shape, index.statistics, classes or index.classes
    torch.manual_seed(0)
    module = NormalisedModel(statistics.mean, statistics.std, build_network("mlp", shape, len(classes)))
    return module, ModelCard("mlp", shape, "uint8", classes, statistics.mean, statistics.std)


def evaluate(
    folder: Path, data: Path, model: Path, *arguments: object, nodes: int = 1, processes: int = 1
) -> tuple[Finished, Path]:
    report = folder / f"report-{nodes}x{processes}"
    ports = ("--data", data, "--model", model, "--report", report)
    work = folder / f"work-{nodes}x{processes}"
    work.mkdir()
    return run_component("evaluate", *ports, *arguments, folder=work, nodes=nodes, processes=processes), report


@pytest.mark.slow
def test_the_report_is_the_same_on_any_number_of_ranks(
    tmp_path: Path, data: Path, model: Path, exhaustive: bool
) -> None:
    reports = []
    for nodes, processes in ((1, 1), (1, 2), (2, 2)) if exhaustive else ((1, 1), (2, 2)):
        finished, report = evaluate(tmp_path, data, model, "--batch-size", 50, nodes=nodes, processes=processes)
        assert finished.ok, finished.output
        assert len(re.findall(r"accuracy 0\.\d{4} on 360 rows of test", finished.output)) == 1
        assert {path.name for path in report.iterdir()} == FILES
        reports.append({name: (report / name).read_bytes() for name in FILES})
    assert all(report == reports[0] for report in reports)


@pytest.mark.slow
def test_the_numbers_are_those_of_scikit_learn(tmp_path: Path, data: Path, model: Path) -> None:
    finished, report = evaluate(tmp_path, data, model, processes=2)
    assert finished.ok, finished.output
    split = Dataset.open(data).split("test")
    taken = split.take(np.arange(split.rows))
    module, _ = load_model(model)
    with torch.inference_mode():
        probabilities = module(torch.from_numpy(taken["x"])).double().softmax(1).numpy()
    labels, said = taken["y"], probabilities.argmax(1)
    expected = {
        "accuracy": reference.accuracy_score(labels, said),
        "macro_f1": reference.f1_score(labels, said, average="macro"),
        "loss": reference.log_loss(labels, probabilities),
        "auc": reference.roc_auc_score(labels, probabilities, multi_class="ovr"),
        "rows": 360,
    }
    numbers = json.loads((report / "metrics.json").read_text(encoding="utf-8"))
    assert {name: numbers[name] for name in expected} == pytest.approx(expected, abs=1e-6)
    assert 0.85 < numbers["accuracy"] < 1
    line = json.loads((tmp_path / "work-1x2" / "outputs" / "metrics.jsonl").read_text(encoding="utf-8"))
    assert line["metrics"] == numbers

    with (report / "predictions.csv").open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    assert [int(line["row"]) for line in lines] == list(range(360))
    assert [int(line["label"]) for line in lines] == labels.tolist()
    assert [int(line["prediction"]) for line in lines] == said.tolist()
    np.testing.assert_allclose([float(line["probability"]) for line in lines], probabilities.max(1), atol=2e-6)

    mistakes = json.loads((report / "worst_rows.json").read_text(encoding="utf-8"))
    wrong = np.flatnonzero(said != labels)
    surest = wrong[np.argsort(-probabilities.max(1)[wrong], kind="stable")][:24]
    assert [one["row"] for one in mistakes] == surest.tolist() != []
    assert [(int(one["label"]), int(one["prediction"])) for one in mistakes] == [(labels[n], said[n]) for n in surest]
    brightest = taken["x"][surest].max()
    for one in mistakes:
        picture = Image.open(io.BytesIO(base64.b64decode(one["picture"].removeprefix("data:image/png;base64,"))))
        levels = taken["x"][one["row"], :, :, 0] * (255 / brightest)  # of bytes up to 16 all would be black
        assert np.array_equal(np.asarray(picture.convert("L")), levels.round())
    page = (report / "index.html").read_text(encoding="utf-8")
    assert all(one["picture"] in page for one in mistakes)


@pytest.mark.slow
@pytest.mark.skipif(not can_mount(), reason="mounting with FUSE needs root and /dev/fuse")
def test_a_mount_whose_listings_fail_and_lag_gets_a_whole_report(tmp_path: Path, data: Path, model: Path) -> None:
    with blob_mount(tmp_path, BlobFaults(listings=True, lag=0.5)) as mount:
        finished, _ = evaluate(mount, data, model, processes=2)
        assert finished.ok, finished.output
        written = list((tmp_path / "behind" / "report-1x2").iterdir())
    assert {path.name for path in written} == FILES, "the folders of the ranks have gone"


@pytest.mark.slow
def test_a_report_without_rows_of_the_data(tmp_path: Path, data: Path, model: Path) -> None:
    finished, report = evaluate(tmp_path, data, model, "--worst-rows", 0)
    assert finished.ok, finished.output
    assert json.loads((report / "worst_rows.json").read_text(encoding="utf-8")) == []
    page = (report / "index.html").read_text(encoding="utf-8")
    assert "wrong predictions none is shown" in page
    assert page.count("<img ") == 3


@pytest.mark.slow
def test_the_page_needs_nothing_else_and_escapes_names(tmp_path: Path, data: Path) -> None:
    index = json.loads((data / "index.json").read_text(encoding="utf-8"))
    index["classes"][3] = "<script>alert(1)</script>"
    odd = tmp_path / "odd"
    odd.mkdir()
    (odd / "index.json").write_text(json.dumps(index), encoding="utf-8")
    for split in ("train", "validation", "test"):
        (odd / split).symlink_to(data / split)
    save_model(tmp_path / "model", *fresh(Dataset.open(odd)))
    finished, report = evaluate(tmp_path, odd, tmp_path / "model", "--split", "validation")
    assert finished.ok, finished.output
    page = (report / "index.html").read_text(encoding="utf-8")
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "://" not in page
    assert set(re.findall(r'(?:src|href)="(.{22})', page)) == {"data:image/png;base64,"}
    assert len(re.findall(r"<img ", page)) == 3 + 24


@pytest.mark.slow
def test_a_model_for_other_data_is_refused_once(tmp_path: Path, data: Path) -> None:
    save_model(tmp_path / "model", *fresh(Dataset.open(data), classes=("cat", "dog")))
    finished, report = evaluate(tmp_path, data, tmp_path / "model", processes=2)
    assert finished.codes == (2, 2)
    assert finished.output.count("the model knows 2 classes (cat, dog), the data has 10 classes") == 1
    assert "Traceback" not in finished.output
    assert not report.exists()


def test_a_diverged_model_is_refused(tmp_path: Path, data: Path) -> None:
    module, card = fresh(Dataset.open(data))
    with torch.no_grad():
        next(module.net.parameters()).fill_(float("nan"))
    save_model(tmp_path / "model", module, card)
    finished, _ = evaluate(tmp_path, data, tmp_path / "model")
    assert finished.codes == (2,)
    assert "its training diverged" in finished.output
