"""Pages and pictures of reports at their limits: one class, a thousand, one rank, names that look like formulas."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import numpy as np
from matplotlib.colors import to_rgb

from shared.cluster.page import write_survey
from shared.cluster.survey import AllReduce, ClusterSurvey
from shared.data import Dataset
from shared.metrics import Confusion, measure_classification, roc_curve
from shared.outputs import OutputParts
from shared.report import RowReader, Subject, pictures, write_classification
from shared.report.pictures import CURVES, INK, contrast, readable_on
from tests.shared.samples import write_text_classification_dataset

LEAST, LEAST_OF_LINES = 4.5, 3.0  # WCAG 2.2, success criteria 1.4.3 and 1.4.11
FORMULA = r"$\frac$"  # which matplotlib refuses to draw, if it takes it for one


def test_what_is_written_into_pictures_can_be_read() -> None:
    white = to_rgb("white")
    assert min(contrast(to_rgb(color), white) for color in CURVES) >= LEAST_OF_LINES
    assert contrast(to_rgb(INK), white) >= LEAST
    shades = [tuple(np.array(white) * (1 - share) + np.array(to_rgb(CURVES[0])) * share) for share in np.linspace(0, 1)]
    assert min(contrast(to_rgb(readable_on(shade)), shade) for shade in shades) >= LEAST


def test_names_of_classes_and_columns_are_no_formulas() -> None:
    curve = roc_curve(np.array([True, False, True]), np.array([0.9, 0.2, 0.4]))
    numbers = np.array([1.0, 2.0])
    drawn = (
        pictures.draw_confusion_matrix(Confusion(np.arange(2), np.arange(2), 2), [FORMULA, "$5"]),
        pictures.draw_roc({0: curve}, [FORMULA, "$5"]),
        pictures.predicted_true(numbers, numbers, FORMULA),
    )
    assert all(picture.startswith(b"\x89PNG") for picture in drawn)


def test_of_many_classes_the_weakest_stand_first_and_all_are_folded(tmp_path: Path) -> None:
    dataset = Dataset.open(write_text_classification_dataset(tmp_path / "data", rows=(64, 16, 16)))
    classes, rows = 60, 90
    labels = np.arange(rows) % (classes - 1)  # the last one does not occur
    logits = np.full((rows, classes), -5.0, np.float32)
    logits[np.arange(rows), labels] = 5
    logits[7, 8] = 9
    parts = OutputParts(tmp_path / "parts", "rows", 1, rows, rows)
    assert parts.write(0, [logits])
    subject = Subject("mlp", "test", (8,), tuple(f"class_{number}" for number in range(classes)))
    reader = RowReader(dataset, dataset.split("test"))
    write_classification(tmp_path, measure_classification(parts, labels), labels, subject, reader, 0)
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    first, _, folded = page.partition("<details>")
    assert re.findall(r"<td>(class_\d+)</td>", first)[:2] == ["class_7", "class_8"]
    assert first.count("<tr><td>") == 20
    assert folded.count("<tr><td>") == classes
    assert "<details open" not in page


def test_the_page_of_one_rank_has_no_bandwidth_and_no_empty_table(tmp_path: Path) -> None:
    machine = {"rank": 0, "node": 0, "host": "here", "device": {"name": "CPU"}, "infiniband": []}
    measured = [AllReduce.of(4, 0.0, 1), AllReduce.of(16, 0.001, 1)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # as of data that a logarithmic axis cannot show
        warnings.filterwarnings("ignore", "'.*' deprecated - use '.*'")  # of pyparsing's names, by matplotlib 3.9
        write_survey(tmp_path, ClusterSurvey("gloo", [machine], [], measured, ["one"]))
        write_survey(tmp_path, ClusterSurvey("gloo", [machine] * 65, [], measured, []))
        many = (tmp_path / "index.html").read_text()
        write_survey(tmp_path, ClusterSurvey("gloo", [machine], [], measured, []))
    page = (tmp_path / "index.html").read_text()
    assert "<h1>1 rank over gloo</h1>" in page
    assert "One rank sends nothing to another" in page
    assert "Slowest pairs" not in page
    assert "<details>" not in page
    assert "<summary>all 65 ranks</summary>" in many
