"""What the client is told, held against docker's own parser; and what is refused. No container is started."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from allranks import run
from allranks.errors import CannotRunHereError
from allranks.local.containers.choice import divided_options
from allranks.local.containers.client import ContainerClient
from allranks.local.containers.host import ContainerHost
from allranks.local.containers.images import ContainerImage, image_of_document
from allranks.local.environments.known import known_image
from allranks.local.folders import StepFolder
from allranks.local.launch import LAUNCHERS, LaunchContext
from allranks.local.variables import EmulatedCluster
from tests.local.support import allranks, pipeline, run_json, step

NOBODY = "unix:///nobody/listens.sock"


@pytest.fixture
def docker() -> str:
    program = shutil.which("docker")
    if program is None or "Docker" not in told(program, "--version"):
        pytest.skip("docker's client is not installed")
    return program


def told(program: str, *arguments: str) -> str:
    """What docker says of a command line where no daemon answers."""
    done = subprocess.run([program, "--host", NOBODY, *arguments], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def context_of(folder: Path, kind: str) -> LaunchContext:
    cluster = EmulatedCluster(2, 1 if kind == "tensorflow" else 2, 20000, 1, parameter_servers=1)
    run = "20261122-101010-000-abcd"
    shared = {"AZUREML_RUN_ID": f"{run}-train", "AZUREML_ROOT_RUN_ID": run, "data": "é # ' \" \\", "a.b": "dotted"}
    (folder / "nodes/0/tmp").mkdir(parents=True)
    (folder / "nodes/1/tmp").mkdir(parents=True)
    (folder / "in, put").mkdir()
    own = {"LINES": "one\ntwo", "PASSWORD": "hunter2"}
    return LaunchContext(
        StepFolder(folder), cluster, "true", shared, own, reads=(folder / "in, put",), writes=(folder,)
    )


@pytest.mark.parametrize("kind", ["pytorch", "tensorflow"])
@pytest.mark.parametrize("rootless", [False, True])
def test_docker_itself_takes_every_option(docker, tmp_path, kind, rootless):
    image = ContainerImage("python:3.11", ContainerClient(docker, False, rootless), tmp_path)
    host = ContainerHost(image, "3g", ("--ulimit", "nofile=100", "--cpus=1"), gpus=True)
    context = context_of(tmp_path, kind)
    launcher = host.launcher(LAUNCHERS[kind])
    launcher.write_files(context)
    commands = launcher.commands(context)
    assert [(one.node, one.essential) for one in commands] == (
        [(0, True), (1, True)] + ([(0, False)] if kind == "tensorflow" else [])
    )
    for one in commands:
        assert one.argv[0] == docker
        assert not any("hunter2" in word for word in one.argv)
        said = told(docker, *one.argv[1:])
        assert "Cannot connect to the Docker daemon" in said, said
    assert "unknown flag" in told(docker, "run", "--no-such-option", "x")  # so the parser does look


def test_docker_itself_takes_every_other_command(docker, tmp_path):
    client = ContainerClient(docker, False, False)
    (tmp_path / "Dockerfile").write_text("FROM scratch\n")
    pulled = ContainerImage("python:3.11", client, tmp_path)
    built = image_of_document({"build": {"path": "."}}, tmp_path, client, tmp_path)
    for image in (pulled, built):
        command, _ = image._command(tmp_path)
        assert "Cannot connect to the Docker daemon" in told(*command)
    for words in (
        ["ps", "--all", "--format", "{{.Names}}"],
        ["kill", "x"],
        ["rm", "--force", "x"],
        ["image", "inspect", "--format", "{{.Id}}", "x"],
        ["info", "--format", "{{json .SecurityOptions}}"],
    ):
        assert "Cannot connect to the Docker daemon" in told(docker, *words)


def test_docker_args_pass_where_they_give_no_rights():
    words = ["--shm-size=1g", "--privileged", "-v", "/:/host", "--ulimit", "nofile=5", "--network", "none", "-m", "4g"]
    passed, left = divided_options(words)
    assert passed == ("--shm-size=1g", "--ulimit", "nofile=5", "-m", "4g")
    assert left == ("--privileged", "-v", "/:/host", "--network", "none")


@pytest.mark.parametrize(
    ("reference", "image"),
    [
        ("azureml:AzureML-sklearn-1.5@latest", "sklearn-1.5:latest"),
        ("azureml://registries/azureml/environments/sklearn-1.5/versions/9", "sklearn-1.5:9"),
        ("azureml://registries/azureml/environments/sklearn-1.5/labels/latest", "sklearn-1.5:latest"),
        ("azureml:AzureML-sklearn-1.0-ubuntu20.04-py38-cpu:33", "sklearn-1.0-ubuntu20.04-py38-cpu:33"),
        ("azureml:theirs:1", None),
    ],
)
def test_curated_environments_have_an_image(reference, image):
    assert known_image(reference) == (image and f"mcr.microsoft.com/azureml/curated/{image}")


def refused(folder: Path, *arguments: str, path: str = "/nowhere") -> str:
    text = step("true").replace("azureml:whatever:1", "{image: python}")
    file = pipeline(folder, f"type: pipeline\njobs: {{one: {text}}}\n")
    done = allranks("run", file, *arguments, cwd=folder, PATH=path, DOCKER_HOST=NOBODY)
    assert done.returncode == 2, done.stderr
    assert not list((folder / ".allranks").glob("runs/*"))
    return done.stderr


def test_what_cannot_be_is_refused_before_anything_starts(tmp_path):
    none = refused(tmp_path, "--containers")
    assert "--containers needs docker or podman, which is not on PATH" in none
    assert "--containers both: there is no such client" in refused(tmp_path, "--containers=both")
    both = refused(tmp_path, "--containers", "--python", f"one={sys.executable}", "--environment", "*=sklearn-1.5")
    assert "--containers and --python and --environment of one, *: in a container the image counts" in both


def test_python_is_refused_the_same_way(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.chdir(tmp_path)
    text = step("true").replace("azureml:whatever:1", "{image: python}")
    file = pipeline(tmp_path, f"type: pipeline\njobs: {{one: {text}}}\n")
    with pytest.raises(CannotRunHereError, match="--containers needs docker or podman"):
        run(str(file), containers=True)
    with pytest.raises(CannotRunHereError, match="--containers needs podman"):
        run(str(file), containers="podman")


def test_a_daemon_that_does_not_answer_is_named(docker, tmp_path):
    said = refused(tmp_path, "--containers", "docker", path=str(Path(docker).parent))
    assert f"{docker} does not answer: " in said
    assert NOBODY in said
    assert "Start its service, or leave out --containers." in said


def test_the_size_of_shared_memory_is_without_effect_outside_containers_alone(tmp_path):
    text = step("true", more="resources: {shm_size: 1g, docker_args: [--cpus 1]}")
    file = pipeline(tmp_path, f"type: pipeline\njobs: {{one: {text}}}\n")
    assert run_json(file, cwd=tmp_path)["exit"] == 0
    done = allranks("run", file, "--dry-run", cwd=tmp_path)
    assert "without effect on this machine: shm_size of one" in done.stderr
