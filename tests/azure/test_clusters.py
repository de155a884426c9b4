"""Clusters: the YAML of the library, and ``allranks cluster`` against the stand-in for Azure."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from azure.ai.ml import load_compute

from allranks import library
from allranks.azure import retry
from allranks.azure.clusters import ComputeCluster
from allranks.cli.main import main
from allranks.errors import UsageError
from allranks.sizes import find_size
from tests.azure.stand_in.fixture import StandIn
from tests.azure.submitting import workspace_client

FILES = sorted((library.root() / "environments" / "clusters").glob("*.yaml"))
A100, H100 = "Standard_NC24ads_A100_v4", "Standard_ND96isr_H100_v5"


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


@pytest.mark.parametrize("name", ["gpu", "null-2", "Yes", "a1-2"])
def test_the_yaml_of_a_cluster_loads_as_what_it_is(name: str, tmp_path: Path) -> None:
    cluster = ComputeCluster(name if len(name) > 2 else name * 2, H100, 8, 1, idle_seconds=60)
    file = tmp_path / "cluster.yaml"
    file.write_text(cluster.yaml())
    loaded = load_compute(file)
    assert (loaded.name, loaded.size, loaded.tier) == (cluster.name, H100, "dedicated")
    assert (loaded.min_instances, loaded.max_instances, loaded.idle_time_before_scale_down) == (1, 8, 60)


def cluster(*arguments: str) -> int:
    return main(["cluster", *arguments])


def test_a_busy_service_is_waited_out(stand_in: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    stand_in.fault("/computes/busy", 429, times=5, retry_after=0.05)
    assert cluster("create", "busy", "--size", H100, "--nodes", "1") == 0
    assert "note: the service asks for patience (429)" in capsys.readouterr().err


def test_create_sends_the_cluster_and_a_second_time_changes_its_limits(
    stand_in: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cluster("create", "h100", "--size", H100, "--nodes", "2", "--infiniband") == 0
    assert capsys.readouterr().out.startswith("created h100 in workspace lab")
    (request,) = stand_in.requests("PUT", "/computes/h100")
    assert request["body"]["properties"]["computeType"] == "AmlCompute"
    assert request["body"]["properties"]["properties"] | {"scaleSettings": None} == {
        "osType": "Linux",
        "vmSize": H100,
        "vmPriority": "Dedicated",
        "scaleSettings": None,
        "remoteLoginPortPublicAccess": "NotSpecified",
        "enableNodePublicIp": True,
    }
    limits = request["body"]["properties"]["properties"]["scaleSettings"]
    assert (limits["minNodeCount"], limits["maxNodeCount"]) == (0, 2)
    assert cluster("create", "h100", "--size", H100.upper(), "--nodes", "8", "--idle", "60", "--json") == 0
    assert json.loads(capsys.readouterr().out)["status"] == "updated"
    settings = stand_in.state["computes"]["h100"]["properties"]["properties"]["scaleSettings"]
    assert (settings["maxNodeCount"], settings["nodeIdleTimeBeforeScaleDown"]) == (8, "PT1M")


def test_what_a_cluster_has_besides_stays(stand_in: StandIn) -> None:
    from azure.ai.ml.entities import AmlCompute, IdentityConfiguration

    identity = IdentityConfiguration(type="system_assigned")
    theirs = AmlCompute(name="theirs", size=H100, tier="dedicated", tags={"team": "vision"}, identity=identity)
    workspace_client().compute.begin_create_or_update(theirs).result()
    assert cluster("create", "theirs", "--size", H100, "--nodes", "8") == 0
    sent = stand_in.requests("PUT", "/computes/theirs")[-1]["body"]
    assert (sent["tags"], sent["identity"]["type"]) == ({"team": "vision"}, "SystemAssigned")
    assert sent["properties"]["properties"]["scaleSettings"]["maxNodeCount"] == 8


def test_the_commands_of_the_page_work(stand_in: StandIn) -> None:
    page = (library.root() / "docs" / "sizes.md").read_text()
    commands = re.findall(r"^allranks (cluster create .*)$", page, re.MULTILINE)
    assert len(commands) == 2
    assert [main(shlex.split(command)) for command in commands] == [0, 0]
    assert {"gpu-infiniband", "gpu-dedicated"} <= stand_in.state["computes"].keys()


def test_low_priority_is_refused(stand_in: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    for more in ((), ("--dry-run",)):
        assert cluster("create", "cheap", "--size", A100, "--low-priority", *more) == 2
        said = capsys.readouterr()
        assert "retired low-priority nodes on 2026-03-31" in said.err
        assert ("tier: dedicated" in said.err, "job_tier: spot" in said.err, said.out) == (True, True, "")
    assert stand_in.log == []


@pytest.mark.parametrize("line", ["tier: low_priority", "tier: LowPriority", "vm_priority: 'lowpriority'"])
@pytest.mark.parametrize("command", ["lint", "submit", "run"])
def test_the_yaml_of_a_low_priority_cluster_is_refused(
    line: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("cheap.yml").write_text(f"name: cheap\ntype: amlcompute\nsize: {A100}\n{line}\n")
    assert main([command, "cheap.yml"]) == 2
    said = "".join(capsys.readouterr())
    assert said.count("cheap.yml:4: ") == said.count("on 2026-03-31") == said.count("job_tier: spot") == 1
    if command == "lint":
        assert main(["lint", "."]) == 2, "it is found in its folder, too"


def test_another_cluster_of_that_name_is_left_alone(stand_in: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    assert cluster("create", "mine", "--size", A100) == 0
    assert cluster("create", "mine", "--size", H100) == 2
    assert "there is a compute 'mine' already: Standard_NC24ads_A100_v4, dedicated." in capsys.readouterr().err
    assert len(stand_in.requests("PUT", "/computes/mine")) == 1


def test_a_dry_run_prints_the_yaml_and_asks_nobody(stand_in: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    assert cluster("create", "gpu", "--size", A100, "--nodes", "3", "--dry-run") == 0
    said = capsys.readouterr()
    assert yaml.safe_load(said.out)["max_instances"] == 3
    assert "note: Standard_NC24ads_A100_v4 has no InfiniBand" in said.err
    assert stand_in.log == []


@pytest.mark.parametrize(
    ("status", "code"), [(401, 2), (403, 2), (429, 1), (503, 1)], ids=["token", "rights", "throttled", "down"]
)
def test_what_the_service_refuses_is_one_message(
    stand_in: StandIn,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    code: int,
) -> None:
    monkeypatch.setattr(retry, "RETRY_SECONDS", 0.5)
    stand_in.fault("PUT .*/computes/", status, retry_after=0.01 if code == 1 else None)
    assert cluster("create", "gpu", "--size", A100, "--nodes", "1") == code
    said = capsys.readouterr().err
    assert said.count("error: ") == 1
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["gpu", "--size", "Standard_NC24r", "--infiniband"], "of the older kind without SR-IOV"),
        (["gpu", "--size", A100, "--infiniband"], "With the same GPU: Standard_ND96amsr_A100_v4, 1600 Gb/s"),
        (["gpu", "--size", "Standard_D4", "--infiniband"], "is not in the table of sizes"),
        (["1gpu", "--size", A100], "'1gpu' is no name of a cluster: 3 to 24 letters"),
        (["gpu", "--size", A100, "--nodes", "0"], "--nodes is at least 1"),
        (["gpu", "--size", A100, "--min-nodes", "9"], "a cluster of 9 to 4 nodes cannot be"),
        (["gpu", "--size", A100, "--idle", "-1"], "--idle -1: seconds begin at 0"),
        (["gpu"], "--size"),
    ],
)
def test_bad_input_is_refused(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cluster("create", *arguments, "--dry-run") == 2
    assert said in capsys.readouterr().err


def test_without_a_workspace_the_message_says_how_to_name_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cluster("create", "gpu", "--size", A100) == 2
    assert "config.json" in capsys.readouterr().err


def test_the_sizes_are_listed_by_what_they_have(capsys: pytest.CaptureFixture[str]) -> None:
    assert cluster("sizes", "--infiniband", "--gpu", "a100", "--json") == 0
    found = json.loads(capsys.readouterr().out)["sizes"]
    assert [size["name"] for size in found] == ["Standard_ND96amsr_A100_v4", "Standard_ND96asr_v4"]
    assert cluster("sizes") == 0
    assert "Standard_NC24r" not in capsys.readouterr().out
    assert cluster("sizes", "--all") == 0
    assert "retired 2022-08-31" in capsys.readouterr().out
    assert cluster("sizes", "--gpu", "H1000") == 2
    capsys.readouterr()
    assert cluster("create", "gpu", "--size", "Standard_ND96isr_MI300X_v5", "--dry-run") == 0
    assert "Standard_ND96isr_MI300X_v5 suits none: its GPUs are AMD's" in capsys.readouterr().err


def test_a_cluster_checks_itself() -> None:
    with pytest.raises(UsageError, match="no dash last"):
        ComputeCluster("gpu-", A100)
