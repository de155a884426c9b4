"""The wheel, where there is no checkout: it composes, exports and submits."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from allranks import library
from tests.azure.stand_in.fixture import StandIn

ROOT = Path(__file__).parents[2]

OWN = """
from azure.ai.ml import Input
from azure.ai.ml.dsl import pipeline

from allranks import components, scale

@pipeline(default_compute="cpu-cluster")
def own(epochs: int = 2):
    prepare = components.prepare_data()
    train = scale(components.train_ddp(data=prepare.outputs.data, epochs=epochs), nodes=3)
    return {"model": train.outputs.model}
"""


@pytest.fixture(scope="module")
def binaries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel; what the wheel needs is that of this one, so that no network is needed.

    The wheel's own folder comes first on the path, so this checkout's package is not seen.
    """
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True, text=True)
    subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
    python = folder / "venv" / "bin" / "python"
    (wheel,) = folder.glob("*.whl")
    pip = [str(python), "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", str(wheel)]
    subprocess.run(pip, check=True)
    where = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    packages = Path(subprocess.run(where, check=True, capture_output=True, text=True).stdout.strip())
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python.parent


@pytest.mark.slow
def test_a_wheel_composes_exports_and_submits(azure_server: StandIn, binaries: Path, tmp_path: Path) -> None:
    azure_server.reset()
    (tmp_path / "own.py").write_text(OWN)

    def call(*arguments: str) -> str:
        command = [str(binaries / "allranks"), *arguments]
        environ = azure_server.environ()
        environ.pop("PYTHONPATH", None)
        done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    where = [str(binaries / "python"), "-c", "import allranks; print(allranks.__file__)"]
    found = subprocess.run(where, cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    assert found.startswith(str(binaries.parent)), "the wheel's package, not this checkout's"
    call("export", "own.py:own", "-o", "own.yaml")
    assert "instance_count: 3" in (tmp_path / "own.yaml").read_text()
    call("register", "prepare_data", "train_ddp", "--workspace")
    sent = json.loads(call("submit", "own.py:own", "epochs=4", "--json"))
    assert sent["status"] in ("waiting", "running")
    properties = azure_server.requests("PUT", f"/jobs/{sent['job']}")[0]["body"]["properties"]
    assert properties["jobs"]["train"]["resources"]["instance_count"] == 3
    assert properties["inputs"]["epochs"]["value"] == "4"
    shown = json.loads(call("submit", "image_classification", "--registered", "--dry-run", "--json"))
    assert shown["steps"]["train"]["component"] == f"azureml:train_ddp:{library.VERSION}"
