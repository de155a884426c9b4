"""``allranks plan``: what is printed, what is refused and with which message, and what a run has measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from allranks.cli.main import main

RESNET = ["plan", "train_ddp", "architecture=resnet50", "batch_size=2048", "--size", "Standard_NC24ads_A100_v4"]
GIVEN = [*RESNET, "--samples-per-second", "800"]


def document(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> dict[str, Any]:
    assert main([*arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, dict)
    return found


def test_a_table_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*GIVEN, "--nodes", "8", "--samples", "1e6", "--price", "3.5"]) == 0
    said = capsys.readouterr().out
    assert "train_ddp of train_ddp on Standard_NC24ads_A100_v4, 20 Gb/s Ethernet, replicated" in said
    assert "gradients 102.2 MB (the settings of the target)" in said
    assert [line.split()[0] for line in said.splitlines()[4:]] == ["1", "2", "4", "8"]
    assert "\n  a node costs 3.5 for an hour\n" in said
    assert "time for 1,000,000 rows" in said
    assert "cost" in said


def test_a_table_with_nodes_that_cannot_be(capsys: pytest.CaptureFixture[str]) -> None:
    few = [one.replace("batch_size=2048", "batch_size=4") for one in GIVEN]
    assert main([*few, "--nodes", "2", "8", "--samples", "1e6", "--price", "3.5"]) == 0
    two, eight = (line.split() for line in capsys.readouterr().out.splitlines()[4:6])
    assert (two[0], "-" in two) == ("2", False)
    assert eight == ["8", "8", "4", *["-"] * 7]


def test_a_pipeline_s_bubble_is_in_the_sum(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    stages = ["plan", "train_fsdp", "pipeline_parallel=2", "accumulation_steps=4", "batch_size=64"]
    size = ["--size", "Standard_ND96isr_H100_v5", "--samples-per-second", "100", "--weights", "1e9", "--nodes", "2"]
    given = [*stages, *size]
    one = document(capsys, given)["nodes"][-1]
    parts = ("compute", "exposed", "contention", "straggling", "bubble")
    assert one["bubble_seconds"] > 0
    assert one["step_seconds"] == pytest.approx(sum(one[f"{part}_seconds"] for part in parts))
    assert main([*given, "--picture", str(tmp_path / "plan.svg")]) == 0
    assert "stages without work" in (tmp_path / "plan.svg").read_text()


def test_the_document_adds_up(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, [*GIVEN, "--nodes", "1", "3", "64", "--samples", "1e6", "--price", "2"])
    assert [one["nodes"] for one in found["nodes"]] == [1, 3, 64]
    one, three, many = found["nodes"]
    assert one["step_seconds"] == one["compute_seconds"] == pytest.approx(2048 / 800)
    assert one["efficiency"] == 1
    assert one["efficiency"] > three["efficiency"] > many["efficiency"]
    parts = ("compute_seconds", "exposed_seconds", "contention_seconds", "straggling_seconds")
    assert many["step_seconds"] == pytest.approx(sum(many[part] for part in parts))
    assert many["cost"] == pytest.approx(2 * 64 * many["seconds"] / 3600)
    assert found["sources"] == {"compute": "given", "weights": "the settings of the target", "samples": "given"}


def test_a_link_that_is_given_takes_the_place_of_the_table_s(capsys: pytest.CaptureFixture[str]) -> None:
    slow, fast = (document(capsys, [*GIVEN, "--link-gigabits", rate])["nodes"][-1] for rate in ("1", "100"))
    assert slow["efficiency"] < fast["efficiency"]


def test_a_growing_batch_keeps_its_share(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, [*GIVEN, "--weak", "--nodes", "4"])
    assert [one["batch_size"] for one in found["nodes"]] == [2048, 4096, 8192]


def test_three_ways_to_give_the_same_compute(capsys: pytest.CaptureFixture[str]) -> None:
    ways = (["--samples-per-second", "800"], ["--sample-seconds", "0.00125"], ["--step-seconds", "2.56"])
    assert {round(document(capsys, [*RESNET, *way])["sample_seconds"], 9) for way in ways} == {0.00125}


def test_a_picture_is_an_svg(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "plan.svg"
    assert main([*GIVEN, "--nodes", "4", "--picture", str(file)]) == 0
    texts = [one.text for one in ET.parse(file).getroot().iter() if one.tag.endswith("text")]  # noqa: S314 ours
    assert {"1", "2", "4", "nodes", "waiting for the network"} <= set(texts)
    capsys.readouterr()


def test_a_price_from_a_table_names_its_source(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "prices.yml"
    file.write_text("currency: EUR\nsource: a contract\ndate: 2026-11-01\nsizes: {standard_nc24ads_a100_v4: 3.4}\n")
    found = document(capsys, [*GIVEN, "--samples", "1e6", "--prices", str(file)])
    assert found["price"] == {"amount": 3.4, "currency": "EUR", "source": "a contract", "date": "2026-11-01"}
    assert main([*GIVEN, "--prices", str(file)]) == 0
    assert "  a node costs 3.4 EUR for an hour (a contract, 2026-11-01)" in capsys.readouterr().out.splitlines()


def test_a_price_without_a_number_of_rows_is_shown_for_a_million(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, [*GIVEN, "--price", "2"])
    assert (found["samples"], found["sources"]["samples"]) == (1e6, "not said")
    assert found["nodes"][0]["cost"] == pytest.approx(2 * found["nodes"][0]["seconds"] / 3600)
    assert main([*GIVEN, "--price", "2"]) == 0
    said = capsys.readouterr().out
    assert "time for 1,000,000 rows" in said
    assert "note: how many rows are to be trained on is not said: --samples N, all epochs." in said
    assert document(capsys, GIVEN)["nodes"][0]["cost"] is None


@pytest.mark.parametrize(
    ("arguments", "said", "hint"),
    [
        (RESNET, "nothing is known of how long a GPU", "--samples-per-second"),
        ([*GIVEN, "--nodes", "0"], "--nodes 0 is not from 1 to 1,024", "--nodes 64"),
        ([*GIVEN, "--nodes", "2000"], "--nodes 2000 is not from 1 to 1,024", ""),
        ([*GIVEN, "--weights", "-1"], "--weights -1 is not a number above 0", ""),
        ([*GIVEN, "--price", "nan"], "--price nan is not a number from 0", ""),
        ([*GIVEN, "--price", "1", "--prices", "x.yml"], "both name a price", ""),
        ([*GIVEN, "--prices", "none.yml"], "no table of prices 'none.yml'", "docs/plan.md"),
        ([*GIVEN, "--picture", "plan.png"], "it is an SVG", "plan.svg"),
        ([*GIVEN, "--step", "other"], "'other' is no step", "train_ddp"),
        (
            ["plan", "train_ddp", "--size", "Standard_NC24ads_A100_v4", "--sample-seconds", "1"],
            "how many weights",
            "--weights",
        ),
        (
            ["plan", "evaluate", "--size", "Standard_NC24ads_A100_v4", "--sample-seconds", "1"],
            "no step of evaluate trains",
            "",
        ),
        (
            ["plan", "train_ddp", "--size", "Standard_NC24ad_A100_v4"],
            "did you mean 'Standard_NC24ads_A100_v4'",
            "cluster sizes",
        ),
        (
            [*GIVEN[:4], "--size", "Standard_NC128ds_xl_RTXPRO6000BSE_v6", "--sample-seconds", "1"],
            "between its nodes is not known",
            "--link-gigabits",
        ),
    ],
)
def test_what_is_wrong_ends_with_one_message(
    capsys: pytest.CaptureFixture[str], arguments: list[str], said: str, hint: str
) -> None:
    assert main(arguments) == 2
    printed = capsys.readouterr().err
    assert said in printed
    assert hint in printed


def test_a_run_tells_what_a_rank_computes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    home = str(tmp_path / "runs")
    arguments = ["plan", "image_classification", "epochs=1", "--size", "Standard_ND96isr_H100_v5", "--runs-dir", home]
    arguments += ["--nodes", "2"]
    found = document(capsys, [*arguments, "--measure"])
    assert found["gradient_bytes"] > 0
    assert found["sources"]["weights"].startswith("the model of run ")
    again = document(capsys, [*arguments, "--run", "latest", "--times-faster", "10"])
    assert again["sample_seconds"] == pytest.approx(found["sample_seconds"] / 10)
    assert again["samples"] == found["samples"] > 0
    assert main([*arguments, "--run", "latest", "--step", "evaluate"]) == 2
    assert "evaluate" in capsys.readouterr().err
