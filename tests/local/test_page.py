"""The page of a run: there while it runs, with charts that can be read, the scale and the inputs."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

from tests.local.support import allranks, command, environ, pipeline, step
from tests.waiting import wait_for

LOGGED = [
    {"step": 1, "metrics": {"loss": 2.0, "learning_rate": 0.1, "accuracy": 0.25}},
    {"step": 2, "metrics": {"loss": 1.0, "learning_rate": 0.01}},
    {"step": 4, "metrics": {"loss": 0.5, "learning_rate": 0.0001, "validation_loss": 0.75, "accuracy": 0.5}},
    {"step": 8, "metrics": {"loss": 0.25, "validation_loss": 0.5, "learning_rate": 0.0001}},
]


def page_of(folder: Path) -> Path:
    return next((folder / ".allranks" / "runs").glob("*/report.html"))


def test_charts_have_axes_and_the_page_says_what_was_asked_for(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, LOGGED)))
    script = f"mkdir -p outputs; cp {tmp_path}/metrics.jsonl outputs; echo '${{{{inputs.word}}}}'"
    more = "distribution: {type: pytorch, process_count_per_instance: 1}"
    use = step("true", inputs="data: '${{parent.jobs.one.outputs.out}}'")
    one = step(script, inputs="word: '${{parent.inputs.word}}'", outputs="out: {type: uri_folder}", more=more)
    pipeline(tmp_path, f"type: pipeline\ninputs: {{word: none}}\njobs: {{one: {one}, use: {use}}}\n")
    done = allranks("run", "pipeline.yaml", "word=hello", "--scale", "one=1x2", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    page = page_of(tmp_path).read_text()
    charts = {re.search(r'aria-label="([^"]*)', one)[1]: one for one in page.split("<figure")[1:]}  # type: ignore[index]
    assert list(charts) == ["loss and validation_loss over steps", "accuracy over steps", "learning_rate over steps"]
    assert charts["loss and validation_loss over steps"].count("<polyline") == 2, "training and validation together"
    texts = re.findall(r"<text[^>]*>([^<]*)", charts["loss and validation_loss over steps"])
    assert {"0.5", "1", "1.5", "2", "step 1", "step 8"} <= set(texts), "both axes have numbers"
    assert "0.0001" in charts["learning_rate over steps"], "a range of orders of magnitude has a scale of its own"
    assert "logarithmic" in charts["learning_rate over steps"]
    assert 'class="minor"' in charts["learning_rate over steps"].partition(">")[0] + ">"
    assert "--scale one=1x2" in page
    assert re.search(r"<td>word</td><td>hello</td>", page)
    assert re.search(r"<td>data</td><td>&lt;one.out&gt;</td>", page)
    assert 'http-equiv="refresh"' not in page


def test_the_page_is_there_while_the_run_goes_on(tmp_path: Path) -> None:
    jobs = f"{{one: {step('true')}, two: {step(f'while ! test -e {tmp_path}/go; do sleep 0.05; done')}}}"
    pipeline(tmp_path, f"type: pipeline\njobs: {jobs}\n")
    with subprocess.Popen(
        command("run", "pipeline.yaml"), cwd=tmp_path, env=environ(), stdout=subprocess.DEVNULL
    ) as run:
        try:
            page = wait_for(lambda: next(tmp_path.glob(".allranks/runs/*/report.html"), None))
            text = page.read_text()
            assert '<meta http-equiv="refresh"' in text
            assert "still running" in text
            assert re.search(r'id="step-one".*?succeeded.*?id="step-two".*?running', text, re.DOTALL)
        finally:
            run.kill()
    opened = allranks("runs", "open", "latest", cwd=tmp_path, DISPLAY="", WAYLAND_DISPLAY="")
    assert opened.stdout.strip() == str(page)
    text = page.read_text()
    assert 'http-equiv="refresh"' not in text, "an engine that was killed writes nothing more"
    assert "cancelled" in text


def test_a_page_tells_attempts_by_node_where_inputs_came_from_and_what_has_changed(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code/note.txt").write_text("old\n")
    more = "code: ./code, environment_variables: {MODE: fast, API_KEY: unseen}, resources: {instance_count: 2}"
    more += ", distribution: {type: pytorch, process_count_per_instance: 1}"
    (tmp_path / "code/fail.py").write_text("raise RuntimeError('no more')\n")
    script = f"echo ${{{{inputs.word}}}} ${{{{inputs.other}}}}; test -e {tmp_path}/well || python fail.py"
    one = step(script, inputs="word: '${{parent.inputs.word}}', other: fixed", more=more)
    pipeline(tmp_path, f"type: pipeline\ninputs: {{word: none}}\njobs: {{one: {one}}}\n")
    (tmp_path / "well").touch()
    assert allranks("run", "pipeline.yaml", cwd=tmp_path).returncode == 0
    (tmp_path / "well").unlink()
    (tmp_path / "code/note.txt").write_text("new\n")
    failed = allranks("run", "pipeline.yaml", "word=given", "--retries", "1", "--json", cwd=tmp_path)
    assert failed.returncode == 1
    details = json.loads(failed.stdout)["steps"]["one"]["details"]
    sources = {name: (source["kind"], source["words"]) for name, source in details["input_sources"].items()}
    assert sources == {
        "word": ("given", "input word of the pipeline: given as word"),
        "other": ("written", "written in pipeline.yaml, line 3"),
    }
    assert (details["variables"]["MODE"], details["variables"]["API_KEY"]) == ("fast", "***")
    assert details["environment"] == "azureml:whatever:1"
    first, second = details["attempt_times"]
    assert (first["status"], sorted(first["nodes"])) == ("failed", ["0", "1"])
    assert second["started"] > first["started"] + first["seconds"], "after the pause"
    page = max((tmp_path / ".allranks" / "runs").glob("*/report.html")).read_text()
    assert re.search(
        r'<td>word</td><td>given</td><td class="soft">input word of the pipeline: given as word</td>', page
    )
    assert re.search(r'<td>other</td><td>fixed</td><td class="soft">written in pipeline.yaml, line 3</td>', page)
    assert page.count('class="bar failed"') == 2 * 3, "two attempts, and of each both nodes"
    assert '<span class="added">+new' in page
    assert "attempt 1: std_log_process_1.txt" in page
    assert "unseen" not in page
    assert page.count(f'File "{tmp_path}/code/fail.py", line 1'.replace('"', "&#34;")) >= 3, "the user's file"
    assert "nodes/0/work/fail.py" not in page
    shown = json.loads(allranks("runs", "show", "latest", "--json", cwd=tmp_path).stdout)
    embedded = page.partition('id="document">')[2].partition("</script>")[0]
    assert json.loads(embedded) == shown
