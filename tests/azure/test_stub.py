"""What editors and type checkers are told: it is current, and a checker finds a user's mistakes with it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from allranks import catalogue
from allranks.spec import read_component
from tools import stubs

ROOT = Path(__file__).parents[2]

USER = """\
from azure.ai.ml import Input
from azure.ai.ml.entities._job.pipeline._io import PipelineInput

from allranks import components, scale


def right(data: Input, epochs: int, rate: float, optimizer: str, size: PipelineInput) -> object:
    prepare = components.prepare_data(dataset="digits")
    train = components.train_ddp(data=prepare.outputs.data, epochs=epochs, optimizer=optimizer, batch_size=size)
    other = components.train_ddp(data=data, learning_rate=rate, compile="true")
    scale(train, nodes=2, processes_per_node=size, instance_type="Standard_ND96isr_H100_v5", tier="spot")
    other.compute = "gpu"
    return components.evaluate(data=prepare.outputs.data, model=train.outputs.model)


def wrong(data: Input) -> None:
    components.train_ddp(data=data, epoch=3)  # did you mean "epochs"
    components.train_ddp(data=data, epochs="three")  # incompatible type "str"
    components.train_ddp(epochs=3)  # Missing named argument "data"
    components.train_ddp(data=data, compile=True)  # incompatible type "Literal[True]"
    print(components.train_ddp(data=data).outputs.modle)  # maybe "model"
    components.train_dpd(data=data)  # maybe "train_ddp"
    scale(components.train_ddp(data=data), node=2)  # did you mean "nodes"
    scale(components.train_ddp(data=data), nodes=1.5)  # incompatible type "float"
"""


def test_the_stub_is_current() -> None:
    made = stubs.components_stub([read_component(path) for path in catalogue.component_files().values()])
    kept = (ROOT / "allranks" / "azure" / "components.pyi").read_text()
    assert kept == made, "renew it with: make renew"


SDK = {
    "__init__": "class Input: ...",
    "entities/__init__": "class Command:\n    compute: str\nclass CommandComponent: ...",
    "entities/_job/pipeline/_io": "class NodeOutput: ...\nclass PipelineInput: ...",
    "entities/_job/sweep/search_space": "class SweepDistribution: ...",
}
"""The classes that the stub names, for the SDK takes the checker ten seconds; test_sdk.py finds them in the SDK."""


@pytest.mark.slow
def test_a_checker_finds_each_of_a_user_s_mistakes_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "user.py").write_text(USER)
    for name, text in SDK.items():
        file = tmp_path / f"sdk/azure/ai/ml/{name}.pyi"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (tmp_path / "mypy.ini").write_text(
        f"[mypy]\nmypy_path = {tmp_path}/sdk:{ROOT}\nfollow_imports = silent\ncheck_untyped_defs = true\n"
        "no_site_packages = true\nincremental = false\nnamespace_packages = true\nexplicit_package_bases = true\n"
    )
    command = [sys.executable, "-m", "mypy", "--config-file", "mypy.ini", "user.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    found = dict(re.findall(r"^user\.py:(\d+): error: (.+)$", done.stdout, re.MULTILINE))
    expected = {str(n): line.split("  # ")[1] for n, line in enumerate(USER.splitlines(), start=1) if "  # " in line}
    assert found.keys() == expected.keys(), done.stdout
    for line, words in expected.items():
        assert words in found[line]
