"""What a pipeline names by name and version is found in the YAML files of the checkout, and never guessed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from allranks.local import checkout
from allranks.local.assets import CloudStandIns, register_asset
from allranks.local.checkout import CheckoutFiles, project_root
from allranks.local.checkout_assets import ENVIRONMENTS, CheckoutAssets
from allranks.local.folders import RunsHome
from allranks.performing import prepare_run
from allranks.request import RunRequest
from tests.cli.conftest import cli  # noqa: F401 a fixture
from tests.local.support import allranks, run_json

COMPONENT = """\
$schema: https://azuremlschemas.azureedge.net/latest/commandComponent.schema.json
name: count_rows
version: {version}
type: command
environment: azureml:counting@latest
inputs: {{rows: {{type: uri_file}}}}
outputs: {{number: {{type: uri_file}}}}
command: wc -l < ${{{{inputs.rows}}}} > ${{{{outputs.number}}}}; echo {version} >> ${{{{outputs.number}}}}
"""
PIPELINE = """\
type: pipeline
inputs:
  rows: {{type: uri_file, path: '{rows}'}}
jobs:
  count:
    type: command
    component: {component}
    inputs: {{rows: '${{{{parent.inputs.rows}}}}'}}
"""


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A checkout whose component, environment, data and pipeline lie in folders of their own."""
    root = tmp_path / "project"
    (root / ".git").mkdir(parents=True)
    write(root / "components/count/component.yml", COMPONENT.format(version=2))
    write(root / "environments/counting/env.yaml", "name: counting\nimage: ubuntu:24.04\n")
    write(root / "data/files/rows.csv", "a\nb\nc\n")
    write(root / "data/rows.yml", "name: rows\nversion: 1\ntype: uri_file\npath: files/rows.csv\n")
    target(root)
    return root


def target(root: Path, component: str = "azureml:count_rows:2", rows: str = "azureml:rows:1") -> Path:
    return write(root / "jobs/count/pipeline.yml", PIPELINE.format(component=component, rows=rows))


def assets(root: Path) -> CheckoutAssets:
    return CheckoutAssets.around(root / "jobs/count")


def test_a_pipeline_runs_with_what_lies_in_its_checkout(project):
    result = run_json(project / "jobs/count/pipeline.yml", cwd=project)
    assert result["exit"] == 0, result
    assert Path(result["steps"]["count"]["outputs"]["number"]).read_text().split() == ["3", "2"]


def test_each_file_that_is_taken_is_named(project):
    shown = allranks("run", "jobs/count/pipeline.yml", "--dry-run", cwd=project)
    assert shown.returncode == 0, shown.stderr
    for line in (
        "azureml:count_rows:2 is components/count/component.yml, of this checkout.",
        "azureml:counting@latest is environments/counting/env.yaml, of this checkout.",
        "azureml:rows:1 is data/rows.yml, of this checkout.",
    ):
        assert line in shown.stdout + shown.stderr
    document = json.loads(allranks("run", "jobs/count/pipeline.yml", "--dry-run", "--json", cwd=project).stdout)
    assert document["assets"]["azureml:rows:1"] == str(project / "data/rows.yml")


def test_lint_and_show_find_them_too(project):
    done = allranks("lint", "jobs", "--json", cwd=project)
    document = json.loads(done.stdout)
    assert (done.returncode, document["problems"]) == (0, [])
    assert set(document["assets"]["jobs/count/pipeline.yml"]) == {
        "azureml:count_rows:2",
        "azureml:counting@latest",
        "azureml:rows:1",
    }
    assert "count_rows" in allranks("show", "jobs/count/pipeline.yml", cwd=project).stdout


def test_a_dry_run_of_a_submission_reads_components_here_and_asks_nobody(project, cli, monkeypatch):  # noqa: F811
    monkeypatch.chdir(project)
    arguments = ("submit", "jobs/count/pipeline.yml", "--dry-run", "--compute", "cpu", "--json")
    done = cli(*arguments)
    assert done.code == 0, done.err
    step = done.json["steps"]["count"]
    assert (step["component"], step["snapshot"]) == ("count_rows", None)  # the workspace's own is what runs
    assert "azureml:count_rows:2 is components/count/component.yml, of this checkout." in done.err
    (project / "jobs/count/pipeline.yml").write_text(
        PIPELINE.format(component="azureml:count_rows:2", rows="azureml:rows:1").replace("{rows: '$", "{lines: '$")
    )
    wrong = cli(*arguments)
    assert wrong.code == 2
    assert "there is no input 'lines' in 'count_rows'" in wrong.out + wrong.err


def test_the_environment_of_a_step_is_the_file_that_was_found(project):
    request = RunRequest(str(project / "jobs/count/pipeline.yml"), str(project))
    plan = prepare_run(request, RunsHome(project / ".allranks")).plan
    environment = plan.steps["count"].component.environment
    assert environment.file == project / "environments/counting/env.yaml"
    assert environment.reference == "azureml:counting@latest"


@pytest.mark.parametrize(
    "reference",
    [
        "azureml:count_rows:2",
        "azureml:count_rows@latest",
        "azureml:count_rows",
        "azureml://registries/shared/components/count_rows/versions/2",
        "azureml://registries/shared/components/count_rows/labels/latest",
        "azureml://subscriptions/s/resourceGroups/g/workspaces/w/components/count_rows/versions/2",
    ],
)
def test_every_form_of_a_reference_finds_a_component(project, reference):
    assert CloudStandIns(checkout=assets(project)).find_component(reference) == (
        project / "components/count/component.yml"
    )


def test_the_newest_is_the_highest_number(project):
    for version in (9, 10):
        write(project / f"components/v{version}/component.yml", COMPONENT.format(version=version))
    found = CloudStandIns(checkout=assets(project)).find_component("azureml:count_rows@latest")
    assert found == project / "components/v10/component.yml"


def test_another_version_is_not_taken_and_the_one_that_is_there_is_named(project):
    refused = allranks("run", target(project, "azureml:count_rows:3"), cwd=project)
    assert refused.returncode == 2
    assert "this checkout, which has version 2 in components/count/component.yml" in refused.stderr
    assert "--map azureml:count_rows:3=components/count/component.yml" in refused.stderr


def test_a_file_without_a_version_serves_any(project):
    write(project / "components/count/component.yml", COMPONENT.format(version=2).replace("version: 2\n", ""))
    found = CloudStandIns(checkout=assets(project))
    for reference in ("azureml:count_rows:7", "azureml:count_rows@latest"):
        assert found.find_component(reference) == project / "components/count/component.yml"


def test_two_files_that_serve_equally_are_refused_with_the_line_that_decides(project):
    write(project / "components/copy/component.yml", COMPONENT.format(version=2))
    write(project / "environments/copy.yml", "name: counting\nimage: another\n")
    refused = allranks("run", "jobs/count/pipeline.yml", cwd=project)
    assert refused.returncode == 2
    assert "components/copy/component.yml and just as well components/count/component.yml" in refused.stderr
    option = "azureml:count_rows:2=components/copy/component.yml"
    assert f"--map {option}" in refused.stderr
    refused = allranks("run", "jobs/count/pipeline.yml", "--map", option, cwd=project)
    assert "environments/copy.yml and just as well environments/counting/env.yaml" in refused.stderr
    noted = allranks("lint", "jobs/count/pipeline.yml", "--map", option, cwd=project)
    assert noted.returncode == 0  # Azure takes it
    assert "environments/copy.yml and just as well" in noted.stdout
    decided = allranks(
        *("run", "jobs/count/pipeline.yml", "--dry-run", "--map", option),
        *("--map", "azureml:counting=environments/copy.yml"),
        cwd=project,
    )
    assert decided.returncode == 0, decided.stderr


def test_of_equal_files_the_nearest_to_the_target_is_meant(project):
    write(project / "other/env.yml", "name: counting\nimage: other\n")
    near = write(project / "jobs/env.yml", "name: counting\nimage: near\n")
    assert CloudStandIns(checkout=assets(project)).find_environment("azureml:counting:1") == near


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("azureml://datastores/blob/paths/rows.csv", "lies in the cloud"),
        ("https://host/rows.csv", "lies in the cloud"),
        ("files/lost.csv", "does not exist"),
    ],
)
def test_data_that_lies_elsewhere_is_refused_with_its_yaml(project, path, words):
    write(project / "data/rows.yml", f"name: rows\nversion: 1\ntype: uri_file\npath: {path}\n")
    refused = allranks("run", "jobs/count/pipeline.yml", cwd=project)
    assert refused.returncode == 2
    assert "'azureml:rows:1' is data/rows.yml, and its path" in refused.stderr
    assert words in refused.stderr
    assert "--map azureml:rows:1=PATH" in refused.stderr


def test_the_mapping_wins_then_what_a_run_registered_then_the_checkout(project):
    home = RunsHome(project / ".allranks")
    mapped, registered = write(project / "mapped", ""), write(home.runs / "run/registered", "")
    described = project / "data/files/rows.csv"
    assert CloudStandIns({}, home, assets(project)).find("azureml:rows:1") == described
    register_asset(home, "rows", None, registered, "uri_file")
    assert CloudStandIns({}, home, assets(project)).find("azureml:rows:1") == registered
    assert CloudStandIns({"azureml:rows": mapped}, home, assets(project)).find("azureml:rows:1") == mapped


def test_limits_keep_what_is_nearest_and_are_told(project, monkeypatch):
    for number in range(20):
        write(project / f"many/{number}.yml", "name: other\n")
    near = write(project / "jobs/count/env.yml", "name: counting\nimage: near\n")
    monkeypatch.setattr(checkout, "MOST_YAML_FILES", 5)
    found = assets(project)
    assert found.find("azureml:counting:1", [ENVIRONMENTS]).file == near
    assert "only the nearest 5 were looked at" in found.lines()[-1]
    monkeypatch.setattr(checkout, "MOST_ENTRIES", 10)
    limited = CheckoutFiles(project / "jobs/count")
    assert (limited.named("other"), limited.is_partial) == ([], True)


@pytest.mark.parametrize(
    ("marked", "folder", "root"),
    [
        ("home/work/project/.git", "home/work/project/jobs/a", "home/work/project"),
        ("home/.git", "home/work/project/jobs", "home/work/project/jobs"),  # somebody's settings
        ("home/work/project/.gitignore", "home/work/project/jobs/a", "home/work/project"),
        ("home/.gitignore", "home/project/jobs", "home/project/jobs"),
        ("tmp/.gitignore", "tmp/project", "tmp/project"),
    ],
)
def test_a_project_ends_at_git_and_below_the_home_folder(tmp_path, monkeypatch, marked, folder, root):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(checkout.tempfile, "gettempdir", lambda: str(tmp_path / "tmp"))
    write(tmp_path / marked, "")
    (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    assert project_root(tmp_path / folder) == tmp_path / root
