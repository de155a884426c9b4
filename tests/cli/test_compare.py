"""`allranks runs compare`: two runs that were really run, beside each other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Called
from tests.cli.test_runs import make_run
from tests.local.support import pipeline, step

CODE = 'mkdir -p outputs; echo \'{"step": 1, "metrics": {"loss": 0.%s}}\' > outputs/metrics.jsonl; cat ${{inputs.data}} note.txt; : ${{inputs.rate}}'


def two_runs(folder: Path, cli: Callable[..., Called]) -> list[str]:
    (folder / "code").mkdir()
    (folder / "data.csv").write_text("1,2\n")
    more = "code: ./code, environment_variables: {MODE: '%s', ACCESS_TOKEN: secret%s}"
    inputs = "data: {type: uri_file, path: ./data.csv}, rate: '${{parent.inputs.rate}}'"
    found = []
    for number in (1, 2):
        (folder / "code/note.txt").write_text(f"first\nof {number}\n")
        train = step(CODE % number, inputs=inputs, more=more % (number, number))
        file = pipeline(folder, f"type: pipeline\ninputs: {{rate: 0.1}}\njobs: {{train: {train}}}\n")
        done = cli("run", str(file), *(["rate=0.2"] if number == 2 else []), "--json")
        assert done.code == 0, done.err
        found.append(done.json["run_id"])
        with (folder / "data.csv").open("a") as data:
            data.write("3,4\n")
    return found


def test_what_differs_is_told_in_the_terminal_as_json_and_on_a_page(
    cli: Callable[..., Called], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    first, second = two_runs(tmp_path, cli)
    compared = cli("runs", "compare", first, second, "--json").json
    assert [run["run_id"] for run in compared["runs"]] == [first, second]
    assert compared["metrics"] == [{"step": "train", "name": "loss", "values": [0.1, 0.2]}]
    used = {row["name"]: row["values"] for row in compared["resources"]}
    assert {"cores", "read_gb", "written_gb"} <= set(used)
    assert min(used["written_gb"]) >= 0
    assert compared["inputs"] == [{"step": "train", "name": "rate", "values": ["0.1", "0.2"]}]
    (data,) = compared["data"]
    assert (data["name"], [value["bytes"] for value in data["values"]]) == ("data", [4, 8])
    assert compared["environment"] == [{"step": "train", "name": "MODE", "values": ["1", "2"]}], "secrets look equal"
    ((file,),) = [one["files"] for one in compared["code"]]
    assert (file["path"], file["change"]) == ("note.txt", "changed")
    assert {"-of 1", "+of 2"} < set(file["lines"])
    assert compared["curves"] == {"train": {"loss": {first: [[1.0, 0.1]], second: [[1.0, 0.2]]}}}

    shown = cli("runs", "compare", first, second, "--page", "beside.html")
    lines = [" ".join(line.split()) for line in shown.out.splitlines()]
    assert "train.loss 0.1 0.2" in lines
    assert "train.rate 0.1 0.2" in lines
    assert any(line.startswith("train.read ") for line in lines)
    assert f"train: note.txt changed in {second}, +1 -1 lines" in lines
    assert "inputs: 1 differ, 1 are the same" in lines
    page = (tmp_path / "beside.html").read_text()
    assert '<span class="added">+of 2' in page
    assert "secret1" not in page + shown.out


def test_fewer_than_two_runs_and_one_twice_are_refused(cli: Callable[..., Called], tmp_path: Path) -> None:
    make_run(tmp_path, "r1")
    for arguments, message in (
        (("r1",), "one run cannot be compared"),
        (("r1", "latest"), "named twice"),
        (("r1", "x"), "'x' is not among the runs in "),
    ):
        called = cli("runs", "compare", *arguments, "--runs-dir", str(tmp_path))
        assert (called.code, message in called.err) == (2, True), called.err
