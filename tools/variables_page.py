"""Write docs/variables.md: the variables that Azure ML sets for a rank beside those of a local run.

Each dump in ``azure_variables.yaml`` is compared with the environment of a rank in a real local run of the same shape.
"""

from __future__ import annotations

import fnmatch
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from allranks import library

PAGE = library.root() / "docs" / "variables.md"
DUMPS: Mapping[str, Any] = yaml.safe_load((Path(__file__).parent / "azure_variables.yaml").read_text())
_PRINT = (
    "python -c 'import json, os, sys; json.dump(dict(os.environ), "
    'open(sys.argv[1] + "/" + os.environ["AZUREML_PROCESS_NAME"], "w"))\' '
    "${{outputs.out}} ${{inputs.data}} ${{inputs.text}}"
)
_PREAMBLE = """\
# The variables of a rank

<!-- Made by `make renew` from what jobs on Azure ML have printed and from runs here. -->

The left values are environments that jobs on Azure ML have printed, taken from public threads. They are compared with
a local run of the same kind of job. **same** means the same value or its local counterpart, such as the address of an
emulated node. Every other row gives the reason for the difference. Variables that launchers such as torchrun add are
left out.
"""


@dataclass(frozen=True)
class Comparison:
    """A variable of a dump: ``state`` is same, different, absent, or wrongly set."""

    name: str
    there: str
    here: str | None
    state: str
    reason: str


def variables_page() -> Mapping[Path, str]:
    """Return the page by its file; runs a pipeline for it."""
    with tempfile.TemporaryDirectory() as folder:
        return {PAGE: page_text(run_all(Path(folder)))}


def run_all(folder: Path) -> dict[str, dict[str, str]]:
    """The environment of one rank for each dump, of a run whose steps have the dumps' shapes."""
    (folder / "data").mkdir()
    jobs = {f"step{number}": _step(dump) for number, dump in enumerate(DUMPS["dumps"].values())}
    file = folder / "pipeline.yaml"
    file.write_text(json.dumps({"type": "pipeline", "experiment_name": "named", "jobs": jobs}))
    # Of the caller's variables only these, or one that is set by chance would count as set by the engine.
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ} | {
        "PYTHONPATH": str(library.root())
    }
    command = [sys.executable, "-m", "allranks", "run", str(file), "--json"]
    done = subprocess.run(command, cwd=folder, env=kept, capture_output=True, text=True, timeout=280, check=False)
    if done.returncode:
        raise RuntimeError(done.stdout + done.stderr)
    result = json.loads(done.stdout)
    found = {}
    for step, (title, dump) in zip(jobs, DUMPS["dumps"].items(), strict=True):
        rank = "main" if dump["rank"] is None else f"rank_{dump['rank']}"
        found[title] = json.loads((Path(result["steps"][step]["outputs"]["out"]) / rank).read_text())
    return found


def _step(dump: Mapping[str, Any]) -> dict[str, Any]:
    step: dict[str, Any] = {
        "type": "command",
        "command": _PRINT,
        "environment": "azureml:any:1",
        "inputs": {"data": {"type": "uri_folder", "path": "./data"}, "text": "a b"},
        "outputs": {"out": {"type": "uri_folder"}},
        "resources": {"instance_count": dump["nodes"]},
    }
    if dump["distribution"]:
        count = {"parameter_server_count": dump.get("parameter_servers")}
        if dump["distribution"] != "tensorflow":
            count = {"process_count_per_instance": dump["processes"]}
        step["distribution"] = {"type": dump["distribution"], **count}
    return step


def compared(dump: Mapping[str, Any], seen: Mapping[str, str]) -> Iterator[Comparison]:
    """Each variable of a dump, and those that must not be there but are."""
    filled = _placeholders(dump)
    for name, value in dump["variables"].items():
        expected = value
        for placeholder, text in filled.items():
            expected = expected.replace(placeholder, text)
        here = seen.get(name)
        same = here is not None and fnmatch.fnmatchcase(here, expected.replace("[", "[[]"))
        state = "same" if same else "absent" if here is None else "different"
        yield Comparison(name, value, here, state, "" if same else reason(name))
    for name in dump["absent"]:
        if name in seen:
            yield Comparison(name, "absent", seen[name], "wrongly set", reason(name))


def reason(name: str) -> str:
    """Why it is not as on Azure ML; empty if nobody has said so."""
    return next((why for key, why in DUMPS["reasons"].items() if fnmatch.fnmatchcase(name, key)), "")


def _placeholders(dump: Mapping[str, Any]) -> dict[str, str]:
    rank, processes = dump["rank"] or 0, dump["processes"]
    node, local = divmod(rank, processes)
    addresses = [f"127.0.0.{number + 1}" for number in range(dump["nodes"])]
    return {
        "{rank}": str(rank), "{size}": str(dump["nodes"] * processes), "{local}": str(local),
        "{local_size}": str(processes), "{node}": str(node), "{nodes}": str(dump["nodes"]), "{own}": addresses[node],
        "{main}": addresses[0], "{all;}": ";".join(addresses), "{all,}": ",".join(addresses), "{experiment}": "named",
    }  # fmt: skip


def page_text(environments: Mapping[str, Mapping[str, str]]) -> str:
    """The page, from the environments that ``run_all`` has found."""
    parts = [_PREAMBLE]
    for title, dump in DUMPS["dumps"].items():
        rows = [
            f"| `{one.name}` | {_shown(one.there)} | {one.state} | {one.reason} |"
            for one in compared(dump, environments[title])
        ]
        parts.append(f"## {title}\n\nFrom {', '.join(dump['sources'])}.\n")
        parts.append("\n".join(["| variable | on Azure ML | here | |", "|---|---|---|---|", *rows]) + "\n")
        parts.append(f"In neither: {', '.join(f'`{name}`' for name in dump['absent'])}.\n")
    parts.append("## Here alone\n")
    parts.append("\n".join(f"- `{name}`: {text}" for name, text in DUMPS["more"].items()) + "\n")
    return "\n".join(parts)


def _shown(value: str) -> str:
    return "any" if value == "*" else f"`{value}`"
