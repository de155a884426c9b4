"""A component of one's own into a workspace and a registry, from the folder that `allranks init` has written."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from allranks.azure.register_assets import own_assets
from allranks.errors import SpecError
from tests.azure.registering import properties
from tests.azure.stand_in.fixture import ROOT, StandIn, azure_server

__all__ = ["azure_server"]

SCRIPT = (
    "import argparse\np = argparse.ArgumentParser()\np.add_argument('--epochs', type=int, default=2)\np.parse_args()\n"
)


def call(server: StandIn, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "allranks", *arguments]
    environ = server.environ(PYTHONPATH=str(ROOT))
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.slow
def test_a_folder_is_registered_with_its_environment(azure_server: StandIn, tmp_path: Path) -> None:
    """In a registry, which takes no second version of an anonymous environment; a workspace is asked the same way."""
    place = ["--registry", "shared"]
    azure_server.reset()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/count.py").write_text(SCRIPT)
    assert call(azure_server, tmp_path, "init", "mine/count.py").returncode == 0
    planned = call(azure_server, tmp_path, "submit", "mine", "--scale", "1x1", "--dry-run", "--json")
    assert json.loads(planned.stdout)["steps"]["count"]["nodes"] == 1, planned.stderr
    first = call(azure_server, tmp_path, "register", "mine", *place, "--json")
    assert first.returncode == 0, first.stderr
    listed: dict[str, Any] = json.loads(first.stdout)
    assert [(one["kind"], one["name"], one["version"]) for one in listed["assets"]] == [
        ("environment", "count-environment", "1"),
        ("component", "count", "1"),
    ]
    store = azure_server.state["registry"]
    specification = properties(store, "components", "count", "1")["componentSpec"]
    assert specification["environment"].endswith("/environments/count-environment/versions/1")
    again = json.loads(call(azure_server, tmp_path, "register", "mine", *place, "--json").stdout)
    assert [one["action"] for one in again["assets"]] == ["unchanged", "unchanged"]
    (tmp_path / "mine/count.py").write_text(SCRIPT + "print('more')\n")
    refused = call(azure_server, tmp_path, "register", "mine/component.yaml", *place)
    assert refused.returncode == 2
    assert "component count 1: its code changed" in refused.stderr
    assert "Raise `version:` in mine/component.yaml, and register again." in refused.stderr


OWN = "type: command\nname: mine\nversion: '1'\ncommand: echo hello\n"
IN_PLACE = "environment: {image: some.test/image, conda_file: conda.yaml}\n"


def test_a_date_among_the_tags_is_text(tmp_path: Path) -> None:
    (tmp_path / "component.yaml").write_text(f"{OWN}environment: azureml:theirs:1\ntags: {{released: 2026-11-23}}\n")
    (own,) = own_assets(tmp_path)
    assert own.document["tags"] == {"released": "2026-11-23"}


@pytest.mark.parametrize("conda", [b"dependencies: [\n", b"name: caf\xe9\n", b"- python\n", b""])
def test_a_conda_file_that_cannot_be_read_is_named(tmp_path: Path, conda: bytes) -> None:
    (tmp_path / "component.yaml").write_text(OWN + IN_PLACE)
    (tmp_path / "conda.yaml").write_bytes(conda)
    with pytest.raises(SpecError, match=r"conda\.yaml"):
        own_assets(tmp_path)


def test_a_folder_without_a_component_names_what_writes_one(azure_server: StandIn, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    said = call(azure_server, tmp_path, "register", "empty", "--workspace")
    assert (said.returncode, "there is no component.yaml in 'empty'" in said.stderr) == (2, True), said.stderr
