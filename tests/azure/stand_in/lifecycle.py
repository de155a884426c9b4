"""What becomes of a job: it moves on by one state whenever somebody looks at it, so no test has to wait.

The script says how it ends: ``{"end": "succeeds"}``, ``{"end": "fails", "step": "train", "log": "...", "message":
"...", "rank": "1"}`` (the rank whose log that is) or ``{"end": "hangs"}``, in which every step runs until the job is
cancelled. With ``"pace": "4"`` a look moves a job on by four states. A step starts when those that it reads from have
ended; a step of a nested pipeline is called OUTER.INNER.
"""

from __future__ import annotations

import re
import uuid
from typing import Any

from tests.azure.stand_in.rules import asset
from tests.azure.stand_in.state import Blob, State
from tests.azure.stand_in.storage import signed

OVER = ("Completed", "Failed", "Canceled")
BEFORE_RUNNING = {"NotStarted": "Queued", "Queued": "Running"}
_UPSTREAM = re.compile(r"\$\{\{parent\.jobs\.(\w+)\.")
ERROR = "Execution failed. User process exited with status code 1. Please check the log file for details."


def start(state: State, name: str, properties: dict[str, Any]) -> None:
    """Make the runs of the job and, nested, of its steps."""
    _add(state, name, "", properties.get("displayName") or name, None, properties["jobs"])
    state.runs[name]["script"] = dict(state.script)


def _add(
    state: State, run: str, path: str, shown: str, parent: str | None, nodes: dict[str, Any] | None, after: Any = ()
) -> None:
    state.runs[run] = {
        "name": run,
        "path": path,
        "display_name": shown,
        "parent": parent,
        "after": list(after),
        "status": "NotStarted",
        "pipeline": nodes is not None,
        "started": False,
        "error": None,
    }
    for step, node in (nodes or {}).items():
        inner = None
        if node["type"] == "pipeline":
            inner = asset(state, node["componentId"], "components")["properties"]["componentSpec"]["jobs"]
        upstream = _UPSTREAM.findall(str(node.get("inputs")))
        title = node.get("display_name") or step
        _add(state, str(uuid.uuid4()), f"{path}.{step}".lstrip("."), title, run, inner, sorted(set(upstream)))


def children(state: State, name: str) -> list[dict[str, Any]]:
    """The runs of the steps of a run, in the order in which they were sent."""
    return [run for run in state.runs.values() if run["parent"] == name]


def tick(state: State, name: str) -> None:
    """Move the job on by as many states as its script says."""
    for _ in range(int(state.runs[name]["script"].get("pace", 1))):
        _step_on(state, name)


def _step_on(state: State, name: str) -> None:
    run = state.runs[name]
    if run["status"] in OVER:
        return
    if run["status"] == "NotStarted":
        run["status"], run["started"] = "Running", True
        return
    _move(state, run, run["script"])


def _move(state: State, run: dict[str, Any], script: dict[str, Any]) -> None:
    steps = children(state, run["name"])
    status = {step["path"].rpartition(".")[2]: step["status"] for step in steps}
    for step in steps:
        before = {status[other] for other in step["after"]}
        if step["status"] in OVER or not before <= {"Completed", "Failed", "Canceled"}:
            continue
        if before & {"Failed", "Canceled"}:
            step["status"] = "Canceled"  # never started: its inputs will not come
        elif step["status"] in BEFORE_RUNNING:
            step["status"] = BEFORE_RUNNING[step["status"]]
            if step["status"] == "Running":
                step["started"] = True
                _log(state, step, "starting\n")
        elif step["pipeline"]:
            _move(state, step, script)
        elif script.get("end") != "hangs":
            _end(state, step, script)
    ended = {step["status"] for step in steps}
    if ended <= set(OVER):
        run["status"] = "Failed" if "Failed" in ended else "Canceled" if "Canceled" in ended else "Completed"
        if run["status"] == "Failed":
            run["error"] = "Pipeline has some failed steps. See child run or execution logs for more details."


def _end(state: State, step: dict[str, Any], script: dict[str, Any]) -> None:
    if script.get("end") == "fails" and step["path"] == script["step"]:
        step["status"], step["error"] = "Failed", script.get("message", ERROR)
        _log(state, step, script.get("log", ""), int(script.get("rank", 0)))
    else:
        step["status"] = "Completed"
        _log(state, step, "done\n")


def _log(state: State, step: dict[str, Any], text: str, rank: int = 0) -> None:
    if not step["pipeline"]:
        blob = state.blobs.setdefault(f"{_folder(step['name'])}user_logs/std_log_process_{rank}.txt", Blob())
        blob.content += text.encode()


def _folder(run: str) -> str:
    """The container and folder of what a run writes."""
    return f"azureml/ExperimentRun/dcid.{run}/"


def logs(state: State, run: str) -> dict[str, str]:
    """Log name to an address with a signature, as the run's details list them."""
    folder = _folder(run)
    return {path.removeprefix(folder): signed(state, path) for path in state.blobs if path.startswith(folder)}


def cancel(state: State, name: str) -> None:
    """End all that has not ended."""
    run = state.runs[name]
    if run["status"] not in OVER:
        run["status"] = "Canceled"
        for step in children(state, name):
            cancel(state, step["name"])
