"""What ranks print of the user's files names these, wherever it is shown, and not the copies that the nodes ran."""

from __future__ import annotations

import json
from pathlib import Path

import allranks as library
from allranks.local.page.document import page_document
from tests.local.support import allranks

SCRIPT = """\
import json, sys, warnings
warnings.warn("odd")
with open("outputs/metrics.jsonl", "w") as file:
    file.write(json.dumps({"metrics": {"loss": 1}}))
if sys.argv[1] == "2":
    raise RuntimeError("no more")
"""
SWEEP = """\
type: pipeline
jobs:
  tune:
    type: sweep
    sampling_algorithm: grid
    trial:
      type: command
      code: ./code
      command: python train.py ${{inputs.k}}
      environment: azureml:own:1
      inputs: {k: {type: integer}}
    search_space: {k: {type: choice, values: [1, 2]}}
    objective: {primary_metric: loss, goal: minimize}
    limits: {max_total_trials: 2, max_concurrent_trials: 1}
"""


def test_tracebacks_and_warnings_name_the_users_files_everywhere(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code/train.py").write_text(SCRIPT)
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    run = allranks("run", "sweep.yaml", "--events", "events.jsonl", "--logs", cwd=tmp_path)
    warned, traced = f"{tmp_path}/code/train.py:2: UserWarning", f'File "{tmp_path}/code/train.py", line 6'
    view = library.load_run("latest", tmp_path / ".allranks")
    events = map(json.loads, (tmp_path / "events.jsonl").read_text().splitlines())
    shown = {
        "run": run.stdout,
        "events": "\n".join(event["line"] for event in events if event["event"] == "log"),
        "runs logs": allranks("runs", "logs", "latest", "tune.1", cwd=tmp_path).stdout,
        "notebook": view.logs("tune.1"),
        "failure": "\n".join(
            json.loads((view.steps["tune"].folder / "trials/1/step.json").read_text())["failure"]["last_lines"]
        ),
        "page": view.folder.report.read_text().replace("&#34;", '"'),  # of the best trial, which has no traceback
    }
    for place, text in shown.items():
        assert warned in text, place
        assert traced in text or place == "page", place
        assert "/work/train.py" not in text, place
    assert page_document(view.folder).is_file()
