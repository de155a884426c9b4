"""The clusters of the library, as ``az ml compute create --file`` would send them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from azure.ai.ml import load_compute

from allranks import library
from allranks.cli.main import main
from allranks.sizes import find_size

FILES = sorted((library.root() / "environments" / "clusters").glob("*.yaml"))


def sent(file: Path) -> dict[str, Any]:
    """What the SDK would send for a cluster's YAML."""
    document: dict[str, Any] = load_compute(file)._to_rest_object().as_dict()
    return document


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_cluster_of_the_library_is_what_its_name_says(file: Path) -> None:
    rest = sent(file)["properties"]["properties"]
    size = find_size(rest["vmSize"])
    assert size is not None
    assert not size.retired
    assert rest["scaleSettings"]["minNodeCount"] == 0, "it costs nothing while it has nothing to do"
    assert rest["vmPriority"] == "Dedicated"
    assert (size.infiniband > 0) == (file.stem == "infiniband")


def test_there_is_one_of_each_kind() -> None:
    assert [file.stem for file in FILES] == ["dedicated", "infiniband"]


@pytest.mark.parametrize("line", ["tier: low_priority", "tier: LowPriority", "vm_priority: 'lowpriority'"])
@pytest.mark.parametrize("command", ["lint", "submit", "run"])
def test_the_yaml_of_a_low_priority_cluster_is_refused(
    line: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("cheap.yml").write_text(f"name: cheap\ntype: amlcompute\nsize: Standard_NC24ads_A100_v4\n{line}\n")
    assert main([command, "cheap.yml"]) == 2
    said = "".join(capsys.readouterr())
    assert said.count("cheap.yml:4: ") == said.count("on 2026-03-31") == said.count("job_tier: spot") == 1
    if command == "lint":
        assert main(["lint", "."]) == 2, "it is found in its folder, too"
