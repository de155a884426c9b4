"""Commands name their data without quotes, as everybody's on Azure ML do: they run in a folder of any name."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from allranks.local.plain_paths import plain_path
from tests.local.support import pipeline, run_json, step

PLACES = ["my folder", "it's", 'a "b" $(c)', "ü; touch x", "a&b", "plain"]
FIND = """
find ${{inputs.rows}} -name '*.csv' | wc -l > ${{outputs.out}}/count && cat ${{inputs.file}} >> ${{outputs.out}}/count &&
test -d $AZURE_ML_INPUT_rows
"""


@pytest.mark.parametrize("name", PLACES)
def test_it_is_one_word_of_a_shell_and_leads_to_the_same_place(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    inside = tmp_path / name / "rows"
    inside.mkdir(parents=True)
    (inside / "a.csv").write_text("1")
    for path in (inside, inside.parent, inside / "a.csv"):
        found = plain_path(path)
        told = subprocess.run(["/bin/sh", "-c", f"find {found} -type f"], capture_output=True, text=True, check=True)
        assert len(told.stdout.splitlines()) == 1, told
        assert Path(found).samefile(path)
        assert plain_path(path) == found
        assert (found == str(path)) == (name == "plain")
    plain_path(inside / "of" / "another" / "run")
    assert len(list((tmp_path / "cache").glob("allranks/paths/*"))) == (0 if name == "plain" else 1), "one for a folder"
    odd = inside / "my file.csv"
    odd.write_text("2")
    assert Path(plain_path(odd)).suffix == ".csv"
    assert Path(plain_path(odd)).read_text() == "2"


@pytest.mark.parametrize("kind", ["", "pytorch"])
def test_a_pipeline_of_somebody_else_runs_in_a_folder_with_a_space(kind: str, tmp_path: Path) -> None:
    folder = tmp_path / "my folder"
    (folder / "my rows").mkdir(parents=True)
    (folder / "my rows" / "a.csv").write_text("1")
    inputs = "rows: {type: uri_folder, path: ./my rows}, file: {type: uri_file, path: ./my rows/a.csv}"
    more = f"distribution: {{type: {kind}, process_count_per_instance: 1}}" if kind else ""
    first = step(" ".join(FIND.split()), inputs=inputs, outputs="out: {type: uri_folder}", more=more)
    second = step(
        "cat ${{inputs.given}}/count && cat '${{inputs.given}}/count'",
        inputs='given: "${{parent.jobs.first.outputs.out}}"',
    )
    file = pipeline(folder, f"type: pipeline\njobs: {{first: {first}, second: {second}}}\n")
    result = run_json(file, cwd=folder)
    assert result["exit"] == 0, result["steps"]
    assert (Path(result["steps"]["first"]["outputs"]["out"]) / "count").read_text() == "1\n1"


def test_a_place_of_somebody_else_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    place = tmp_path / "allranks" / "paths"
    place.mkdir(parents=True)
    place.chmod(0o777)
    assert plain_path("/a b/c").startswith("/tmp/allranks-paths-")  # noqa: S108
