"""``allranks.run`` and ``allranks.runs`` in Python: why a step failed, where the logs are, and the runs before."""

from __future__ import annotations

from pathlib import Path

import pytest

import allranks
from allranks.errors import UnknownNameError, UsageError
from tests.local.support import pipeline, step


def test_a_failed_run_says_why_and_where_and_can_be_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    jobs = f"{{one: {step(f'echo the reason; test -e {tmp_path}/mended || exit 3')}, two: {step('echo {} > ${{outputs.out}}', outputs='out: {type: uri_file}')}}}"
    pipeline(tmp_path, f"type: pipeline\njobs: {jobs}\n")
    result = allranks.run("pipeline.yaml", retries=1)
    printed = capsys.readouterr()
    log = result.steps["one"].folder / "user_logs" / "std_log.txt"
    for said in (printed.err, result.explanation):
        assert "step one: the command ended with exit code 3" in said
        assert "| the reason" in said
        assert str(log) in said
    assert f"allranks run --resume {result.run_id}" in printed.out
    assert result.steps["one"].logs == [log]
    assert list(result.failures) == ["one"]
    assert "ended with exit code 3" in result._repr_html_()
    again = allranks.runs()
    assert [one.run_id for one in again] == [result.run_id]
    assert again[0].document() == result.document()
    assert allranks.load_run("latest").steps["two"].outputs["out"].read_text() == "{}\n"
    (tmp_path / "mended").touch()
    resumed = allranks.run(resume=result, logs="one:0")
    assert (resumed.status, resumed.steps["two"].reused_from) == ("succeeded", result.run_id)
    printed = capsys.readouterr().out
    assert "one 0 | the reason" in printed
    assert allranks.run(resume="latest", logs=True).steps["one"].reused_from == resumed.run_id
    assert "| the reason" not in capsys.readouterr().out, "a reused step prints nothing"
    with pytest.raises(UnknownNameError, match="there is no step 'three'"):
        allranks.run(resume="latest", logs=["one", "three"])
    for wrong in ({}, {"resume": "latest"}):
        with pytest.raises(UsageError, match="given"):
            allranks.run(*(["pipeline.yaml"] if wrong else []), **wrong)
    with pytest.raises(UnknownNameError, match="is no run"):
        allranks.load_run("nothing")
    assert allranks.runs(tmp_path / "elsewhere") == []
