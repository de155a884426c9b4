"""What is there already, what has changed, and what somebody else published."""

from __future__ import annotations

import re
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from azure.ai.ml import load_component, load_environment

from allranks import catalogue
from allranks.azure.client import connect_registry, connect_workspace, find_workspace
from allranks.library import VERSION
from tests.azure.registering import actions, changes, copy_checkout, properties, register, sent, taken_for_library
from tests.azure.stand_in.fixture import StandIn
from tests.azure.submitting import Cli

SMALL = ("compare_models",)
"""A component of one file."""


def test_a_component_brings_its_environment_and_a_pipeline_its_components(cli: Cli, stand_in: StandIn) -> None:
    done = cli("register", *SMALL, "--workspace")
    assert (done.code, done.err) == (0, "")
    assert sent(stand_in.log) == ["environments/allranks-compare", "components/compare_models"]
    assert "published component compare_models" in done.out
    done = cli("register", "image_classification", "--registry", "shared", "--dry-run")
    names = [line.split()[-3] for line in done.out.splitlines() if line.startswith("  ") and line.endswith("publish")]
    assert names == [
        "allranks-pytorch",
        "allranks-evaluate",
        "prepare_data",
        "train_ddp",
        "evaluate",
        "image_classification",
    ]


def test_a_dry_run_shows_the_plan_and_sends_nothing(cli: Cli, stand_in: StandIn) -> None:
    cli("register", "allranks-compare", "--workspace")
    stand_in.forget_log()
    done = cli("register", *SMALL, "--workspace", "--dry-run")
    assert (done.code, done.err) == (0, "")
    assert re.search(rf"environment +allranks-compare +{VERSION} +unchanged", done.out)
    assert re.search(rf"component +compare_models +{VERSION} +publish", done.out)
    assert f"workspace lab, version {VERSION}: 1 to publish, 1 unchanged" in done.out
    assert changes(stand_in.log) == []


def test_a_half_done_registration_is_completed_by_a_repeat(cli: Cli, stand_in: StandIn) -> None:
    stand_in.fault("PUT .*/components/compare_models/", 403)
    done = cli("register", *SMALL, "--workspace")
    assert done.code == 2
    assert "published environment allranks-compare" in done.out
    assert "1 of 2 were published" in done.err
    stand_in.no_faults()
    stand_in.forget_log()
    done = cli("register", *SMALL, "--workspace")
    assert (done.code, done.err) == (0, "")
    assert sent(stand_in.log) == ["components/compare_models"]


def test_what_somebody_published_without_marks_is_compared_by_its_content(cli: Cli, stand_in: StandIn) -> None:
    client = connect_workspace(find_workspace())
    client.environments.create_or_update(load_environment(catalogue.environment_files()["compare"]))
    client.components.create_or_update(load_component(catalogue.component_files()["compare_models"]))
    stand_in.forget_log()
    done = cli("register", *SMALL, "--workspace")
    assert done.code == 0, done.out
    assert "2 unchanged" in done.out
    assert changes(stand_in.log) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda component: setattr(component, "command", f"{component.command} --more"), "its command"),
        (lambda component: setattr(component, "description", "Other"), "its display name, description or tags"),
        (lambda component: component.inputs["goal"].enum.append("both"), "its inputs or outputs"),
        (lambda component: setattr(component, "code", "../../environments/compare"), "its code"),
    ],
    ids=["command", "words", "interface", "code"],
)
def test_what_somebody_published_differently_is_refused(
    cli: Cli, stand_in: StandIn, change: Callable[[Any], None], said: str
) -> None:
    client = connect_workspace(find_workspace())
    client.environments.create_or_update(load_environment(catalogue.environment_files()["compare"]))
    component = load_component(catalogue.component_files()["compare_models"])
    change(component)
    client.components.create_or_update(component)
    stand_in.forget_log()
    done = cli("register", *SMALL, "--workspace")
    assert (done.code, done.out) == (2, "")
    assert f"component compare_models {VERSION}: {said}" in done.err
    assert done.err.count("changed") == 1
    assert changes(stand_in.log) == []


@pytest.mark.usefixtures("stand_in")
def test_files_that_a_registry_does_not_give_back_are_no_reason_to_trust(cli: Cli) -> None:
    client = connect_registry("shared")
    client.environments.create_or_update(load_environment(catalogue.environment_files()["compare"]))
    done = cli("register", *SMALL, "--registry", "shared")
    assert done.code == 2
    assert "cannot be compared" in done.err
    assert "published without allranks" in done.err


def test_somebody_who_publishes_the_same_meanwhile_is_no_conflict(cli: Cli, stand_in: StandIn) -> None:
    cli("register", *SMALL, "--workspace")
    stand_in.fault("GET .*/components/compare_models/versions", 404, times=1)
    stand_in.fault("PUT .*/components/compare_models/versions", 409, times=1)
    done = cli("register", *SMALL, "--workspace")
    assert (done.code, done.err) == (0, "")


NEXT = "9.9.9"


def raise_version(root: Path) -> None:
    """Do as `make bump` does, which needs an index."""
    for path in [*root.glob("components/*/*"), *root.glob("environments/*/environment.yaml")]:
        if path.suffix in (".py", ".yaml"):
            path.write_text(re.sub(rf"{re.escape(VERSION)}(?!\w)", NEXT, path.read_text()))


@pytest.mark.slow
def test_a_change_is_refused_until_the_version_is_raised(cli: Cli, stand_in: StandIn, tmp_path: Path) -> None:
    arguments = (*SMALL, "check_cluster", "--workspace")
    with taken_for_library(copy_checkout(tmp_path)):
        register(tmp_path, *arguments)
        before = deepcopy(stand_in.state["workspace"])
        stand_in.forget_log()
        file = tmp_path / "components/compare_models/component.yaml"
        file.write_text(file.read_text().replace("names the best model", "finds the best model"))
        with (tmp_path / "environments/evaluate/requirements.txt").open("a") as requirements:
            requirements.write("tqdm\n")
        refused = cli("register", *arguments)
        assert (refused.code, refused.out) == (2, "")
        assert f"environment allranks-evaluate {VERSION}: its files changed" in refused.err
        assert f"component compare_models {VERSION}: its display name, description or tags changed" in refused.err
        assert "make bump PART=patch" in refused.err
        dry = cli("register", *arguments, "--dry-run")
        assert dry.code == 2
        assert re.search(r"compare_models +\S+ +refused +its display name", dry.out)
        assert changes(stand_in.log) == []
    raise_version(tmp_path)
    with taken_for_library(tmp_path, NEXT):
        done = register(tmp_path, *arguments)
    assert set(actions(done).values()) == {"publish"}
    assert done["version"] == NEXT
    after = stand_in.state["workspace"]
    for kind, name in (("components", "compare_models"), ("environments", "allranks-evaluate")):
        assert list(after[kind][name]) == [VERSION, NEXT]
        assert after[kind][name][VERSION] == before[kind][name][VERSION]
    raised = properties(after, "components", "compare_models", NEXT)["componentSpec"]
    assert "finds the best model" in raised["description"]
    assert raised["environment"].endswith(f"/allranks-compare/versions/{NEXT}")


def test_the_place_must_be_said_and_be_there(cli: Cli, stand_in: StandIn) -> None:
    for arguments, said in (
        ((), "Give --workspace [NAME] or --registry NAME"),
        (("--workspace", "train_ddp"), "taken for the name of the workspace"),
        (("--registry", "shared", "--subscription", "x"), "about a workspace"),
        (("nothing", "--workspace"), "nothing called 'nothing'"),
        (("train_dpp", "--workspace"), "Did you mean 'train_ddp'?"),
        ((*SMALL, "--workspace", "other"), "workspaces/other"),
        ((*SMALL, "--registry", "other"), "Registry other was not found"),
    ):
        done = cli("register", *arguments)
        assert (done.code, done.out) == (2, ""), arguments
        assert said in done.err
        assert done.err.count("error:") == 1
    assert changes(stand_in.log) == []
