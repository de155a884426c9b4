"""What a step installs is its own: each node's, thrown away after, and never in the interpreter that runs the tool."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from allranks.local.overlay import INSTALL_PATTERN, add_commands, make_overlay
from tests.local.support import pipeline, run_json, step

PACKAGES = Path(sysconfig.get_path("purelib"))


def wheel(folder: Path, name: str, version: str) -> str:
    """A package with one module, and a command of the same name that prints what it was started by."""
    file = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(
            f"{name}/__init__.py", f"import sys\n__version__ = {version!r}\ndef main(): print(sys.prefix)\n"
        )
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: a test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/entry_points.txt", f"[console_scripts]\n{name} = {name}:main\n")
        archive.writestr(f"{info}/RECORD", "")
    return file.name


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """Code that brings a package of its own, and one that is installed in another version."""
    (tmp_path / "code").mkdir()
    wheel(tmp_path / "code", "allranks_test_tiny", "1.0")
    wheel(tmp_path / "code", "packaging", "99.0")
    return tmp_path / "code"


INSTALL = """
if [ $NODE_RANK = 1 ]; then
    while [ ! -e {folder}/done ]; do sleep 0.02; done
    if python -c 'import allranks_test_tiny'; then exit 4; fi
    exit
fi
set -e
pip install --no-index --upgrade ./*.whl
python -c 'import allranks_test_tiny, packaging, numpy; assert packaging.__version__ == "99.0"'
test "$(allranks_test_tiny)" = "$(python -c 'import sys; print(sys.prefix)')"
python -m pip uninstall --yes packaging wheel
python -c 'import packaging, wheel; assert packaging.__version__ != "99.0"'
touch {folder}/done
"""


@pytest.mark.slow
def test_a_node_installs_for_itself_alone(tmp_path, code):
    before = sorted(path.name for path in PACKAGES.iterdir())
    (code / "run.sh").write_text(INSTALL.format(folder=tmp_path))
    more = "code: ./code, resources: {instance_count: 2}, distribution: {type: pytorch, process_count_per_instance: 1}"
    result = run_json(
        pipeline(tmp_path, f"type: pipeline\njobs: {{one: {step('bash run.sh', more=more)}}}\n"), cwd=tmp_path
    )
    assert result["exit"] == 0, result["steps"]["one"]["failure"]
    assert sorted(path.name for path in PACKAGES.iterdir()) == before
    assert not list(Path(result["run_dir"]).rglob("allranks_test_tiny")), "thrown away"


@pytest.mark.slow
def test_what_could_not_be_foreseen_does_not_reach_the_interpreter(tmp_path, code):
    """PIP in two halves, so that nobody finds the word in a script."""
    call = 'subprocess.run([sys.executable, "-m", "pi" + "p", "install", "--no-index", *glob.glob("*tiny*.whl")], check=True)'
    (code / "train.py").write_text(f"import glob, subprocess, sys\nprint(sys.prefix, flush=True)\n{call}\n")
    text = f"type: pipeline\njobs: {{one: {step('python train.py', more='code: ./code')}}}\n"
    result = run_json(pipeline(tmp_path, text), cwd=tmp_path)
    assert result["exit"] == 0, result["steps"]["one"]["failure"]
    log = Path(result["steps"]["one"]["folder"], "user_logs/std_log.txt").read_text()
    assert log.splitlines()[0] == sys.prefix, "a step that seems to install nothing keeps the interpreter"
    assert not (PACKAGES / "allranks_test_tiny").exists()
    assert list(Path(result["run_dir"], "installed").rglob("allranks_test_tiny"))


def test_conda_cannot_install_and_uv_takes_the_nodes_interpreter_for_the_systems(tmp_path):
    (tmp_path / "bin").mkdir()
    for tool in ("conda", "uv"):
        (tmp_path / "bin" / tool).write_text(f"#!/bin/sh\necho $1 $UV_PYTHON >> {tmp_path}/called\n")
        (tmp_path / "bin" / tool).chmod(0o755)
    uv = "uv venv own && uv pip install --system x && UV_SYSTEM_PYTHON=1 uv sync"
    file = pipeline(
        tmp_path, f"type: pipeline\njobs: {{one: {step(f'conda info && {uv} && conda install -y numpy')}}}\n"
    )
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "below"], check=True)  # has no uv
    python = f"one={tmp_path}/below/bin/python"
    result = run_json(file, "--python", python, cwd=tmp_path, PATH=f"{tmp_path}/bin:/usr/bin:/bin")
    assert result["exit"] == 1
    assert "conda install is not emulated" in "".join(result["steps"]["one"]["failure"]["last_lines"])
    called = [line.split() for line in (tmp_path / "called").read_text().splitlines()]
    python = str(Path(result["steps"]["one"]["folder"], "nodes/0/python/bin/python"))
    assert called == [["info"], ["venv"], ["pip", python], ["sync", python]]


def test_commands_of_the_interpreter_start_with_the_overlay(tmp_path):
    below = tmp_path / "below"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", below], check=True)
    (below / "bin/short").write_text(f"#!{below}/bin/python3\nimport sys; print(sys.prefix)\n")
    (below / "bin/long").write_text(
        f"#!/bin/sh\n'''exec' \"{below}/bin/python\" \"$0\" \"$@\"\n' '''\nimport sys; print(sys.prefix)\n"
    )
    (below / "bin/shell").write_text("#!/bin/sh\necho unchanged\n")
    overlay = tmp_path / "over it"
    make_overlay(overlay, below / "bin/python")
    add_commands(overlay, below / "bin/python", str(tmp_path / "nothing"))
    for name in ("short", "long"):
        done = subprocess.run([overlay / "bin" / name], capture_output=True, text=True, check=True)
        assert done.stdout == f"{overlay}\n"
    assert {path.name for path in (overlay / "bin").iterdir()} == {"python", "python3", "pip", "short", "long"}
    with pytest.raises(OSError, match="is a script"):
        make_overlay(tmp_path / "other", below / "bin/short")


@pytest.mark.parametrize(
    ("text", "installs"),
    [
        ("pip install x", True),
        ("python -m pip install -r requirements.txt && python train.py", True),
        ("subprocess.check_call([sys.executable,\n    '-m', 'pip', 'install', name])", True),
        ("pip3.11 -q uninstall x", True),
        ("uv pip sync x", True),
        ("python -m spacy download en", True),
        ("python setup.py develop", True),
        ("python train.py --pipeline install", False),
        ("python pipe.py  # installs nothing", False),
        ("cat pip-list", False),
    ],
)
def test_what_seems_to_install(text, installs):
    assert bool(INSTALL_PATTERN.search(text)) is installs
