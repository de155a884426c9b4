"""Environments that are really built, from packages that are made here, and what runs in them."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from allranks.local.environments.building import has_gpu, lock_file, pip_settings
from allranks.local.environments.recipe import recipe_of
from allranks.local.environments.step_environment import step_environment
from allranks.local.file_locks import held_lock
from tests.local.support import allranks, carrying, command, environ, pipeline, run_json
from tests.waiting import wait_for

TEMPLATE = """
type: pipeline
jobs:
  old:
    type: command
    command: >-
      python -c "import rainfall, sys; print(rainfall.VERSION, sys.prefix)" > ${{outputs.said}}/old.txt
      && echo "$DEPTH" >> ${{outputs.said}}/old.txt
    environment: &one
      image: some/image
      conda_file:
        name: one
        variables: {DEPTH: "7"}
        dependencies: [cudatoolkit=11.3, {pip: [--no-index, --find-links ./wheels, rainfall==1.0]}]
    outputs: {said: {type: uri_folder}}
  new:
    type: command
    command: >-
      cat ${{inputs.before}}/old.txt;
      python -c "import rainfall; print(rainfall.VERSION)" > ${{outputs.said}}/new.txt
    environment: {image: some/image, conda_file: two.yml}
    inputs: {before: "${{parent.jobs.old.outputs.said}}"}
    outputs: {said: {type: uri_folder}}
  changed:
    type: command
    command: >-
      pip install --no-index --find-links "$WHEELS" rainfall==2.0
      && python -c "import rainfall; print(rainfall.VERSION)" > ${{outputs.said}}/changed.txt
    environment: *one
    outputs: {said: {type: uri_folder}}
"""


def wheel(folder: Path, version: str, name: str = "rainfall") -> None:
    """A package that knows its version."""
    folder.mkdir(parents=True, exist_ok=True)
    record = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as file:
        file.writestr(f"{name}.py", f"VERSION = {version!r}\n")
        file.writestr(f"{record}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        file.writestr(f"{record}/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{record}/RECORD", "")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for version in ("1.0", "2.0"):
        wheel(tmp_path / "wheels", version)
    (tmp_path / "two.yml").write_text(
        "dependencies:\n- pip:\n  - --no-index\n  - --find-links ./wheels\n  - rainfall==2.0\n"
    )
    pipeline(tmp_path, TEMPLATE)
    return tmp_path


def environments(project: Path) -> list[Path]:
    return sorted((project / ".allranks" / "environments").glob("[!.]*/"))


@pytest.mark.slow
def test_each_step_runs_in_what_it_names_built_once_and_shared(project: Path) -> None:
    first = allranks("run", "pipeline.yaml", "--json", cwd=project, WHEELS=str(project / "wheels"))
    assert first.returncode == 0, first.stdout + first.stderr
    one, two = environments(project)
    phases = (f"Python 3.{sys.version_info.minor}", "packages")
    assert [line.partition(" (")[0] for line in first.stderr.splitlines() if line.startswith(("one", "two"))] == [
        f"{folder.name}: {phase}" for folder in (one, two) for phase in phases
    ], "each is built once, in the order in which it is needed, though two steps share one"
    (folder,) = (project / ".allranks").glob("runs/*/steps")
    assert (folder / "old/outputs/said/old.txt").read_text() == f"1.0 {one}\n7\n"
    assert (folder / "new/outputs/said/new.txt").read_text() == "2.0\n"
    assert (folder / "changed/outputs/said/changed.txt").read_text() == "2.0\n"
    done = subprocess.run(
        [one / "bin" / "python", "-c", "import rainfall; print(rainfall.VERSION)"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "1.0\n", "what a step installs is the step's"
    again = allranks("run", "pipeline.yaml", cwd=project, WHEELS=str(project / "wheels"))
    assert "reused from" in again.stdout, "the interpreter is the same one"
    assert "built" not in again.stderr
    assert "what environment one asks for besides: cudatoolkit=11.3" in again.stderr
    listed = json.loads(allranks("env", "list", "--json", cwd=project).stdout)["built_for_steps"]
    assert [(each["name"], each["packages"][-1]) for each in listed] == [
        (one.name, "rainfall==1.0"),
        (two.name, "rainfall==2.0"),
    ]
    checked = allranks("env", "check", "pipeline.yaml", cwd=project)
    assert checked.returncode == 0, checked.stdout
    assert allranks("env", "remove", one.name, cwd=project).stdout == f"removed: {one.name}\n"
    assert environments(project) == [two]
    assert allranks("env", "check", "pipeline.yaml", cwd=project).returncode == 1
    assert allranks("env", "remove", "--all", cwd=project).stdout == f"removed: {two.name}\n"
    assert "nothing to remove" in allranks("env", "remove", cwd=project).stderr


@pytest.mark.slow
def test_a_line_that_cannot_be_fetched_is_named_and_can_be_left_out(project: Path) -> None:
    (project / "env.yml").write_text(
        "name: rain\nimage: some/image\nconda_file:\n  dependencies:\n  - pip: [--no-index, --find-links ./wheels,"
        " rainfall==1.0, nowhere-to-be-found==3]\n"
    )
    options = ("--environment", "*=env.yml", "--steps", "old", "--json")
    failed = allranks("run", "pipeline.yaml", *options, cwd=project)
    error = json.loads(failed.stdout)["error"]
    assert failed.returncode == 2
    assert error["message"].startswith(
        "rain: nowhere-to-be-found==3 cannot be installed: Because nowhere-to-be-found was"
    )
    build = f"allranks env build {project}/env.yml --without nowhere-to-be-found"
    assert error["hint"].splitlines()[0] == f"To go on without, once: {build}"
    assert not list((project / ".allranks").glob("runs/*/run.json")), "no step has started"
    wrong = allranks("env", "build", "env.yml", "--without", "nowhere", cwd=project)
    assert wrong.returncode == 2
    assert "rain has no such package" in wrong.stderr
    assert allranks(*build.split()[1:], cwd=project).returncode == 0
    document = run_json("pipeline.yaml", *options[:-1], cwd=project)
    assert document["status"] == "succeeded"
    assert "was built without nowhere-to-be-found==3" in str(
        allranks("run", "pipeline.yaml", *options[:-1], "--dry-run", cwd=project).stderr
    )


@pytest.mark.slow
def test_a_build_that_is_ended_leaves_nothing_running_and_is_made_anew(project: Path, exhaustive: bool) -> None:
    for number in (signal.SIGINT, signal.SIGKILL) if exhaustive else (signal.SIGKILL,):
        for _ in range(5):
            end_a_build(project, number)
            if not list((project / ".allranks").glob("environments/*/built.json")):
                break
            shutil.rmtree(project / ".allranks")  # it was quicker than the signal
        assert not list((project / ".allranks").glob("environments/*/built.json"))
    assert not list((project / ".allranks").glob("runs/*/run.json"))
    assert run_json("pipeline.yaml", "--steps", "old", cwd=project)["status"] == "succeeded"


def end_a_build(project: Path, number: int) -> None:
    """Start a run, and send it a signal as soon as something is built for it."""
    running = subprocess.Popen(
        command("run", "pipeline.yaml", "--steps", "old"), cwd=project, env=environ(), start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    marker = f"ALLRANKS_BUILDING={project}"
    wait_for(lambda: carrying(marker))
    os.killpg(running.pid, number) if number == signal.SIGINT else running.kill()
    running.wait()
    wait_for(lambda: not carrying(marker))


@pytest.mark.slow
def test_whoever_comes_while_it_is_built_waits(project: Path) -> None:
    document = {"image": "i", "conda_file": str(project / "two.yml")}
    recipe = recipe_of(document, project)
    assert recipe is not None
    environment = step_environment(project / ".allranks", recipe)
    environment.folder.mkdir(parents=True)
    (project / "env.yml").write_text(f"name: {recipe.name}\nimage: i\nconda_file: two.yml\n")
    said = project / "said.txt"
    with held_lock(lock_file(environment.folder)), said.open("w") as file:
        waiting = subprocess.Popen(command("env", "build", "env.yml"), cwd=project, env=environ(), stderr=file)
        wait_for(lambda: re.search(rf"-> FLOCK .* {waiting.pid} ", Path("/proc/locks").read_text()))
        (environment.folder / "built.json").write_text('{"name": "two"}')
    assert waiting.wait() == 0
    assert "waiting for somebody else who builds it" in said.read_text()
    assert "packages" not in said.read_text(), "what the other one has built is taken"


def test_the_key_is_what_decides_what_is_installed(project: Path) -> None:
    (project / "constraints.txt").write_text("rainfall<2\n")

    def folder(*lines: str, name: str = "a") -> Path:
        document = {"image": "i", "name": name, "conda_file": {"dependencies": [{"pip": list(lines)}]}}
        recipe = recipe_of(document, project)
        assert recipe is not None
        return step_environment(project, recipe).folder

    first = folder("rainfall==1.0", "-c constraints.txt")
    assert folder("rainfall==1.0", "-c constraints.txt") == first
    assert folder("rainfall==2.0", "-c constraints.txt") != first
    (project / "constraints.txt").write_text("rainfall<3\n")
    assert folder("rainfall==1.0", "-c constraints.txt") != first
    assert folder(name="odd name/../x").parent == first.parent


def test_conda_makes_what_pip_could_not_and_the_rest_is_installed_over_it(project: Path) -> None:
    """A stand-in for micromamba; a real conda was tried by hand, no registry that tests reach has one."""
    tool = project / "bin" / "micromamba"
    tool.parent.mkdir()
    tool.write_text(f'#!/bin/sh\n{sys.executable} -m venv --without-pip "$4" && cp "$6" "$4/asked.yml"\n')
    tool.chmod(0o755)
    conda = "channels: [conda-forge], variables: {A: b}, dependencies: [nodejs, numpy, {pip: [-r list.txt]}]"
    (project / "env.yml").write_text(f"name: e\nimage: i\nconda_file: {{name: one, {conda}}}\n")
    (project / "list.txt").write_text("--no-index\n--find-links ./wheels\nrainfall==1.0\n")
    path = f"{tool.parent}:{os.environ['PATH']}"
    done = allranks("env", "build", "env.yml", cwd=project, PATH=path)
    assert done.returncode == 0, done.stderr
    assert "and what micromamba installs" in done.stderr
    assert "pip cannot give" not in done.stdout
    (folder,) = environments(project)
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert json.loads((folder / "asked.yml").read_text()) == {
        "channels": ["conda-forge"],
        "dependencies": ["nodejs", "numpy", f"python={version}", "pip"],
    }
    code = "import rainfall; assert rainfall.VERSION == '1.0'"
    subprocess.run([folder / "bin" / "python", "-c", code], check=True)


@pytest.mark.slow
def test_a_conda_that_fails_can_be_done_without(project: Path) -> None:
    tool = project / "bin" / "conda"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\necho 'CondaHTTPError: HTTP 000 CONNECTION FAILED'\necho\nexit 1\n")
    tool.chmod(0o755)
    conda = "dependencies: [nodejs=16, {pip: [--no-index, --find-links ./wheels, rainfall]}]"
    environment = f"{{image: i, conda_file: {{name: e, {conda}}}}}"
    pipeline(project, f"type: pipeline\njobs: {{a: {{type: command, command: 'true', environment: {environment}}}}}\n")
    path = f"{tool.parent}:{os.environ['PATH']}"
    failed = allranks("env", "build", "pipeline.yaml", cwd=project, PATH=path)
    assert failed.returncode == 2
    assert "CondaHTTPError: HTTP 000" in failed.stderr
    assert "once: allranks env build pipeline.yaml --without nodejs\n" in failed.stderr
    assert environments(project) == [], "what has failed leaves its log alone"
    done = allranks("env", "build", "pipeline.yaml", "--without", "nodejs", cwd=project, PATH=path)
    assert done.returncode == 0, done.stderr
    assert "without nodejs=16" in done.stdout


@pytest.mark.slow
@pytest.mark.skipif(has_gpu(), reason="there torch is its build for that GPU")
def test_without_a_gpu_torch_is_its_build_for_cpus_where_pip_knows_one(project: Path) -> None:
    wheel(project / "mirror", "2.0", "torch")
    wheel(project / "mirror", "2.0+cpu", "torch")
    wheel(project / "mirror", "2.1", "torch")
    wheel(project / "mirror", "1.0", "rainfall")
    for seed in ("pip", "setuptools", "wheel"):
        wheel(project / "mirror", "99.0", seed)
    (project / "env.yml").write_text(
        "name: e\nimage: i\nconda_file: {dependencies: [pytorch=2.0, {pip: [rainfall]}]}\n"
    )
    caches = {"UV_CACHE_DIR": str(project / "cache")}
    mirror = {**caches, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(project / "mirror")}
    done = allranks("env", "build", "env.yml", cwd=project, **mirror)
    assert done.returncode == 0, done.stderr
    assert "gigabytes" not in done.stderr
    (folder,) = environments(project)
    assert (folder / "lib" / f"python3.{sys.version_info.minor}" / "site-packages" / "torch-2.0+cpu.dist-info").is_dir()


def test_what_is_secret_in_a_line_is_not_shown(project: Path) -> None:
    line = "--extra-index-url https://me:hidden-word@index.test/simple"
    (project / "env.yml").write_text(f"name: e\nimage: i\nconda_file: {{dependencies: [{{pip: ['{line}', a]}}]}}\n")
    done = allranks("env", "check", "env.yml", cwd=project)
    assert "index.test" in done.stdout
    assert "hidden-word" not in done.stdout


def test_a_python_that_cannot_be_had_is_refused_by_name(project: Path) -> None:
    (project / "env.yml").write_text("name: e\nimage: i\nconda_file: {dependencies: [python=3.99]}\n")
    done = allranks(
        "run", "pipeline.yaml", "--environment", "old=env.yml", "--steps", "old", cwd=project, UV_OFFLINE="1"
    )
    assert done.returncode == 2
    assert "e asks for Python 3.99, which is not on this machine" in done.stderr
    assert "--python STEP=PATH" in done.stderr


def test_the_users_choice_wins(project: Path) -> None:
    document = run_json("pipeline.yaml", "--python", f"*={sys.executable}", "--steps", "new", cwd=project)
    assert document["status"] == "failed", "rainfall is not there"
    assert environments(project) == []
    (project / "env.yml").write_text("image: ubuntu:24.04\n")
    done = allranks("run", "pipeline.yaml", "--environment", "*=env.yml", "--dry-run", cwd=project)
    assert "nothing is known of environment" in done.stderr
    wrong = allranks("run", "pipeline.yaml", "--environment", "old=no.yml", cwd=project)
    assert wrong.returncode == 2
    assert "'no.yml' is no environment" in wrong.stderr


def test_settings_of_pip_are_settings_of_uv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pip.conf").write_text(
        "[global]\nindex-url = https://a.test/simple\nextra-index-url =\n  https://b.test/simple\n  https://c.test/simple\n"
        "find-links = /w\ntimeout = 3\n[install]\nfind-links = /x /y\n"
    )
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    monkeypatch.setenv("PIP_INDEX_URL", "https://d.test/simple")
    found = pip_settings()
    assert found["UV_DEFAULT_INDEX"] == "https://d.test/simple", "a variable wins over a file"
    assert found["UV_INDEX"] == "https://b.test/simple https://c.test/simple"
    assert found["UV_FIND_LINKS"] == "/x,/y", "what is said for install wins over what is said for all commands"
    assert not [name for name in found if "TIMEOUT" in name]


@pytest.mark.slow
def test_the_best_version_of_all_indexes_is_taken_and_an_early_one_if_that_is_asked_for(project: Path) -> None:
    """uv alone takes the first index that knows a package, and reads no --pre from a list."""
    for index, version in (("first", "3.0rc1"), ("second", "2.0")):
        folder, file = project / index / "rainfall", f"rainfall-{version}-py3-none-any.whl"
        wheel(folder, version)
        (folder / "index.html").write_text(f'<a href="{file}">{file}</a>')
    first, second = ((project / index).as_uri() for index in ("first", "second"))
    indexes = f"--index-url {first}, --extra-index-url {second}"
    for lines, version in ((f"{indexes}, rainfall", "2.0"), (f"{indexes}, --pre, rainfall", "3.0rc1")):
        (project / "env.yml").write_text(f"name: e\nimage: i\nconda_file: {{dependencies: [{{pip: [{lines}]}}]}}\n")
        done = allranks("env", "build", "env.yml", cwd=project)
        assert done.returncode == 0, done.stderr
        (folder,) = environments(project)
        code = f"import rainfall; assert rainfall.VERSION == '{version}'"
        subprocess.run([folder / "bin" / "python", "-c", code], check=True)
        allranks("env", "remove", "--all", cwd=project)
