"""docs/designer.md: every command of the page runs, in the order of the page, and leaves behind what the page says."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from allranks import catalogue
from allranks.cli.main import main
from allranks.library import VERSION
from tests.azure.stand_in.fixture import StandIn, azure_server, stand_in  # noqa: F401 -- fixtures

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "designer.md").read_text()
COMMANDS = [
    line for block in re.findall(r"^```\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE) for line in block.splitlines()
]
VARIABLES = ("AZUREML_ARM_SUBSCRIPTION", "AZUREML_ARM_RESOURCEGROUP", "AZUREML_ARM_WORKSPACE_NAME")


def test_the_page_s_commands_are_ours_but_for_three() -> None:
    others = [command for command in COMMANDS if not command.startswith("allranks ")]
    assert others == [
        'pip install -c ../allranks/constraints.txt -e "../allranks[azure]"',
        "az login",
        "az ml compute create --file environments/clusters/dedicated.yaml",
    ]
    wanted = Requirement(shlex.split(others[0])[-1].removeprefix("../"))
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert wanted.name == "allranks"
    assert wanted.extras <= extras.keys()


def downloaded_config(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What Studio offers for download, in place of the variables."""
    import os

    values = [os.environ[name] for name in VARIABLES]
    keys = ("subscription_id", "resource_group", "workspace_name")
    (folder / "config.json").write_text(json.dumps(dict(zip(keys, values, strict=True))))
    for name in VARIABLES:
        monkeypatch.delenv(name)


@pytest.mark.slow
@pytest.mark.exhaustive  # tests/docs types the same commands
def test_every_command_does_what_the_page_says(
    stand_in: StandIn,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    downloaded_config(tmp_path, monkeypatch)
    monkeypatch.chdir(tmp_path)
    for command in COMMANDS:
        if not command.startswith("allranks "):
            continue
        sent = len(stand_in.log)
        code = main(shlex.split(command)[1:])
        said = capsys.readouterr()
        assert code == 0, f"{command}\n{said.out}\n{said.err}"
        if "--dry-run" in command:
            assert "train_ddp" in said.out
            assert {request["method"] for request in stand_in.log[sent:]} <= {"GET", "HEAD"}
    workspace, registry = stand_in.state["workspace"], stand_in.state["registry"]
    for name in ("prepare_data", "train_ddp", "evaluate", "image_classification"):
        assert VERSION in workspace["components"][name]
    assert set(catalogue.COMPONENTS) | set(catalogue.PIPELINES) <= registry["components"].keys()
    assert {f"allranks-{name}" for name in catalogue.ENVIRONMENTS} <= registry["environments"].keys()
    assert (tmp_path / "my_components/components/train_ddp/component.yaml").is_file()


def test_what_the_page_tells_to_drag_and_connect_is_there() -> None:
    from allranks.spec import read_component

    shown = {one.display_name: one for one in map(read_component, catalogue.component_files().values())}
    for title in re.findall(r"Drag \*(.+?)\*, \*(.+?)\* and \*(.+?)\*", PAGE)[0]:
        assert title in shown
    assert shown["Prepare data"].inputs["dataset"].default == "digits"
    assert "data" in shown["Prepare data"].outputs
    for title in ("Train (PyTorch DDP)", "Evaluate"):
        assert shown[title].inputs["data"].required
    assert (
        shown["Evaluate"].inputs["model"].type == shown["Train (PyTorch DDP)"].outputs["model"].type == "mlflow_model"
    )
    listed = re.search(r"its values are (.+?)\.", PAGE.replace("\n", " "))
    assert listed is not None
    assert set(re.findall(r"`(\w+)`", listed[1])) == {one.tags["allranks"] for one in shown.values()}
