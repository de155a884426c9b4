"""``allranks renew`` writes component.yaml from the settings and .amlignore from the imports, and nothing else."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from allranks import catalogue
from allranks.cli.main import main
from allranks.local import snapshot
from allranks.renew.interface import with_interface
from allranks.spec import read_component
from tests.helpers import ROOT

BY_FLAGS = [name for name in catalogue.COMPONENTS if name != "compare_models"]  # mldesigner wrote that one
ARGUMENT = re.compile(r"  (\$\[\[)?(--[a-z0-9-]+) '\$\{\{(inputs|outputs)\.(\w+)\}\}'(?:\]\])?")

BY_HAND = """\
# A comment that stays.
$schema: https://azuremlschemas.azureedge.net/latest/commandComponent.schema.json
type: command
name: mine

inputs:
  old:
    type: string

# Another one.
outputs: {}

code: .
additional_includes: [../../shared]
environment: azureml:mine:1
command: >-
  torchrun
  --nproc_per_node 2
  mine.py
  --old '${{inputs.old}}'
distribution: {type: pytorch}  # and one more
"""
WRITTEN = """\
# A comment that stays.
$schema: https://azuremlschemas.azureedge.net/latest/commandComponent.schema.json
type: command
name: mine

inputs:
  data:
    type: uri_folder
    optional: true
    description: "What is read: a folder."
  rate:
    type: number
    default: 0.00000001
    min: 0
    description: >-
      A text that is too long for a line, and therefore is folded at the width that every other text in these files has
      as well.
  fast:
    type: string
    default: "false"
    enum: ["true", "false"]

# Another one.
outputs:
  model:
    type: uri_folder
    mode: rw_mount
    description: The result.

code: .
additional_includes: [../../shared]
environment: azureml:mine:1
command: >-
  torchrun
  --nproc_per_node 2
  mine.py
  $[[--data '${{inputs.data}}']]
  --rate '${{inputs.rate}}'
  --fast '${{inputs.fast}}'
  --model '${{outputs.model}}'
distribution: {type: pytorch}  # and one more
"""
LONG = (
    "A text that is too long for a line, and therefore is folded at the width that every other text in these files has "
    "as well."
)


def port(name: str, type_: str, **other: object) -> dict[str, Any]:
    empty = {"optional": False, "default": None, "min": None, "max": None, "enum": [], "mode": None, "description": ""}
    return {"name": name, "type": type_} | empty | other


def argument(kind: str, name: str, *, optional: bool = False, flag: str = "") -> dict[str, Any]:
    return {"flag": flag or f"--{name}", "kind": kind, "name": name, "optional": optional}


INTERFACE = {
    "inputs": [
        port("data", "uri_folder", optional=True, description="What is read: a folder."),
        port("rate", "number", default=1e-8, min=0, description=LONG),
        port("fast", "string", default="false", enum=["true", "false"]),
    ],
    "outputs": [port("model", "uri_folder", mode="rw_mount", description="The result.")],
    "arguments": [
        argument("inputs", "data", optional=True),
        *(argument("inputs", name) for name in ("rate", "fast")),
        argument("outputs", "model"),
    ],
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree with one component, whose settings are as above."""
    for folder in ("components/mine", "shared/settings"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "components/mine/component.yaml").write_text(BY_HAND)
    (tmp_path / "components/mine/mine.py").write_text("")
    (tmp_path / "shared/__init__.py").write_text("")
    (tmp_path / "shared/settings/__main__.py").write_text(f"print({json.dumps({'mine': INTERFACE})!r})\n")
    return tmp_path


def test_ports_and_arguments_are_written_and_all_else_stays(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tree / "components/mine/component.yaml"
    assert main(["renew", str(tree), "--check"]) == 1
    assert (capsys.readouterr().out, file.read_text()) == ("components/mine/component.yaml\n", BY_HAND)
    assert main(["renew", str(tree)]) == 0
    assert file.read_text() == WRITTEN
    assert main(["renew", str(tree), "--check"]) == 0


def test_a_component_without_settings_stays_as_it_is(tree: Path) -> None:
    (tree / "shared/settings/__main__.py").write_text("print('{}')")
    assert main(["renew", str(tree)]) == 0
    shutil.rmtree(tree / "shared/settings")
    assert main(["renew", str(tree)]) == 0
    assert (tree / "components/mine/component.yaml").read_text() == BY_HAND


def test_what_cannot_be_renewed_is_said(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["renew", str(tree / "shared")]) == 2
    assert "there is no component in" in capsys.readouterr().err
    (tree / "components/mine/component.yaml").write_text(BY_HAND.replace("outputs: {}\n", ""))
    assert main(["renew", str(tree)]) == 2
    assert "there is no 'outputs'" in capsys.readouterr().err
    (tree / "shared/settings/__main__.py").write_text("raise ValueError('epochs has no text')")
    assert main(["renew", str(tree)]) == 2
    assert "ValueError: epochs has no text" in capsys.readouterr().err
    assert main(["renew", str(tree), "--locks"]) == 2


@pytest.mark.parametrize("name", BY_FLAGS)
def test_what_is_read_from_a_component_is_written_again(name: str) -> None:
    text = catalogue.component_files()[name].read_text()
    document = yaml.safe_load(text)
    found = (match for line in text.splitlines() if (match := ARGUMENT.fullmatch(line)))
    interface = {
        kind: [port(one, **({"type_": said.pop("type")} | said)) for one, said in document[kind].items()]
        for kind in ("inputs", "outputs")
    }
    interface["arguments"] = [
        argument(kind, one, optional=bool(optional), flag=flag)
        for optional, flag, kind, one in (match.groups() for match in found)
    ]
    written = with_interface(text, interface)
    assert yaml.safe_load(written) == yaml.safe_load(text)
    assert with_interface(written, interface) == written


@pytest.mark.slow
def test_a_copied_tree_is_current_and_follows_its_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["copy", "prepare_data", str(tmp_path)]) == 0
    folder = tmp_path / "components/prepare_data"
    capsys.readouterr()
    assert main(["renew", str(tmp_path), "--check"]) == 0, capsys.readouterr().out
    script = folder / "prepare_data.py"
    script.write_text(script.read_text() + "\nimport shared.cluster.survey\n")
    assert main(["renew", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "components/prepare_data/.amlignore\n"
    paths = {file.path for file in snapshot.snapshot_files(read_component(folder / "component.yaml"))}
    assert {"shared/cluster/__init__.py", "shared/cluster/survey.py"} <= paths


def test_a_line_by_hand_brings_a_file_back(tmp_path: Path) -> None:
    for folder in ("components/prepare_data", "shared"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    folder = tmp_path / "components/prepare_data"
    with (folder / ".amlignore").open("a") as file:
        file.write("!/shared/metrics.py\n")
    assert main(["renew", str(tmp_path), "--check"]) == 0
    assert "shared/metrics.py" in {
        file.path for file in snapshot.snapshot_files(read_component(folder / "component.yaml"))
    }
