"""`allranks init`: what is read of a script by whichever library takes its arguments, and what is written for it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from allranks.script.paths import path_role
from allranks.script.templates import template_lines
from allranks.spec import check_document, check_quotes, read_spec
from tests.in_process import allranks

DISTRIBUTED = """\
import argparse, os
from pathlib import Path
import numpy, horovd_missing
RATE = 1e-3
def more(parser):
    group = parser.add_argument_group("more")
    group.add_argument("--layers", type=int, nargs="+", default=[1, 2], help="widths")
    return parser
parser = argparse.ArgumentParser(description="Trains.")
parser.add_argument("data", help="a folder")
parser.add_argument("--epochs", "-e", type=int, default=2, help="passes (default: %(default)s)")
parser.add_argument("--lr", type=float, default=RATE * 10)
parser.add_argument("--kind", choices=["a", "b"], default="b")
parser.add_argument("--amp", action="store_true")
parser.add_argument("--note", default=None)
parser.add_argument("--home", default=os.environ.get("HOME"))
parser.add_argument("--local_rank", type=int)
parser.add_argument("--level", type=int, choices=range(1, 4), default=1)
parser.add_argument("--output-dir", type=Path, default=Path("outputs"))
for name in ("x", "y"):
    parser.add_argument(f"--{name}")
args = more(parser).parse_args()
rank = int(os.environ["RANK"])
print(rank, sorted(os.listdir(args.data)), args.epochs, args.lr, args.kind, args.amp, args.note, args.layers, args.level)
(args.output_dir / f"rank{rank}.txt").write_text("x")
"""


def init(folder: Path, *arguments: str) -> dict[str, Any]:
    done = allranks("init", *arguments, "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def component(folder: Path) -> dict[str, Any]:
    """The component.yaml of a folder, which lint has nothing to say of, nor of the pipeline."""
    for name in ("component.yaml", "pipeline.yml"):
        if (folder / name).exists():
            document = read_spec(folder / name)
            assert [*check_document(document), *check_quotes(document)] == []
    found: dict[str, Any] = yaml.safe_load((folder / "component.yaml").read_text())
    return found


@pytest.mark.slow
def test_argparse_from_the_text_to_ranks_that_run(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(DISTRIBUTED)
    said = init(tmp_path, "train.py")
    document = component(tmp_path)
    inputs = document["inputs"]
    assert inputs["epochs"] == {"type": "integer", "default": 2, "description": "passes"}
    assert (inputs["lr"]["default"], inputs["kind"]["enum"]) == (0.01, ["a", "b"])
    assert inputs["amp"] == {"type": "string", "default": "false", "enum": ["true", "false"]}
    assert (inputs["data"]["type"], inputs["layers"]["default"], inputs["level"]["max"]) == ("uri_folder", "1 2", 3)
    assert inputs["note"] == {"type": "string", "optional": True}
    assert document["outputs"] == {"output_dir": {"type": "uri_folder"}}
    assert document["distribution"] == {"type": "pytorch", "process_count_per_instance": 2}
    assert said["next"] == "allranks run . data=FOLDER"
    unread = "\n".join(said["unread"])
    assert "train.py:16: --home: its default is computed" in unread
    assert "train.py:21: the name of an argument is only known when the script runs" in unread
    assert "train.py:17: --local_rank is left to the launcher." in unread
    assert "horovd_missing is not installed here" in unread
    packages = yaml.safe_load((tmp_path / "conda.yaml").read_text())["dependencies"][-1]["pip"]
    assert [line.partition("==")[0] for line in packages] == ["horovd_missing", "numpy"]
    (tmp_path / "train.py").write_text(DISTRIBUTED.replace(", horovd_missing", ""))
    assert "conda.yaml" in allranks("init", "train.py", cwd=tmp_path).stderr, "it differs, and is not overwritten"
    init(tmp_path, "train.py", "--force")
    (tmp_path / "d").mkdir()
    (tmp_path / "d/one").touch()
    done = allranks("run", ".", "data=d", "train.amp=true", "--scale", "2x2", "--json", cwd=tmp_path)
    step = json.loads(done.stdout)["steps"]["train"]
    assert (step["status"], step["nodes"], step["processes"]) == ("succeeded", 2, 2), done.stderr
    assert "this Python has all that environment train pins" not in done.stdout
    assert sorted(path.name for path in Path(step["outputs"]["output_dir"]).iterdir()) == [
        f"rank{rank}.txt" for rank in range(4)
    ]
    log = (Path(step["folder"]) / "user_logs/std_log_process_3.txt").read_text()
    assert log == "3 ['one'] 2 0.01 b True None [1, 2] 1\n"


DATACLASS = """\
from dataclasses import dataclass, field
from typing import Literal, Optional
from transformers import HfArgumentParser
@dataclass
class Arguments:
    source: str = field(metadata={"help": "a text file"})
    epochs: int = 3
    rate: float = field(default=0.5, metadata={"help": "r"})
    amp: bool = True
    kind: Optional[Literal["a", "b"]] = None
(args,) = HfArgumentParser(Arguments).parse_args_into_dataclasses()
open(args.source)
"""


def test_the_fields_of_a_dataclass(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(DATACLASS)
    init(tmp_path, "train.py")
    inputs = component(tmp_path)["inputs"]
    assert inputs["epochs"] == {"type": "integer", "default": 3}
    assert (inputs["rate"]["type"], inputs["rate"]["default"]) == ("number", 0.5)
    assert (inputs["amp"]["default"], inputs["kind"]["enum"]) == ("true", ["a", "b"])
    assert inputs["kind"]["optional"]
    assert "--amp '${{inputs.amp}}'" in component(tmp_path)["command"]


@pytest.mark.parametrize(
    ("name", "value", "role"),
    [
        ("output_dir", "", "written uri_folder"),
        ("model_output", "", "written uri_folder"),
        ("save-path", "model.pt", "written uri_file"),
        ("log_dir", "", "written uri_folder"),
        ("output_format", "json", None),
        ("data", "", "read uri_folder"),
        ("iris_csv", "", "read uri_file"),
        ("train_file", "", "read uri_file"),
        ("dataset", "cifar10", None),
        ("model", "resnet18", None),
        ("url", "https://example.org/a.csv", None),
    ],
)
def test_what_a_path_is_for(name: str, value: str, role: str | None) -> None:
    found = path_role(name, value)
    assert (found and f"{found.use} {found.type}") == role


def test_by_help_asks_the_script_and_has_a_limit(tmp_path: Path) -> None:
    text = "import argparse\np = argparse.ArgumentParser()\nn = '--epo' + 'chs'\nk = dict(default=3, type=int)\n"
    text += "p.add_argument(n, help='passes (default: 3)', **k)\np.add_argument('--amp', action='store_true')\np.parse_args()\n"
    (tmp_path / "odd.py").write_text(text)
    init(tmp_path, "odd.py", "--by-help")
    assert component(tmp_path)["inputs"]["epochs"] == {"type": "integer", "default": 3, "description": "passes"}
    (tmp_path / "bad.py").write_text("raise SystemExit('no help here')\n")
    done = allranks("init", "bad.py", "--by-help", cwd=tmp_path)
    assert (done.returncode, "bad.py --help ended with exit code 1: no help here" in done.stderr) == (2, True)


def test_locks_are_taken_in_place_of_imports(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import numpy, yaml\n")
    (tmp_path / "requirements.txt").write_text("numpy>=1\nsome-tool==3.1  # pinned\n")
    said = init(tmp_path, "train.py")
    pip = yaml.safe_load((tmp_path / "conda.yaml").read_text())["dependencies"][-1]["pip"]
    assert pip[0].startswith("numpy==")
    assert pip[1] == "some-tool==3.1"
    assert "requirements.txt does not name pyyaml, which the script imports: import yaml, train.py:1." in said["unread"]
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "x"\nversion = "1"\ndependencies = ["numpy"]\n')
    (tmp_path / "uv.lock").write_text('version = 1\n[[package]]\nname = "numpy"\nversion = "1.2.3"\n')
    init(tmp_path, "train.py", "--force")
    assert "- numpy==1.2.3\n" in (tmp_path / "conda.yaml").read_text()
    (tmp_path / "environment.yml").write_text("dependencies: [python=3.11, numpy]\n")
    init(tmp_path, "train.py", "--force")
    assert component(tmp_path)["environment"]["conda_file"] == "./environment.yml"


def pip_lines(folder: Path) -> list[str]:
    """What the conda file that `init` has written installs with pip."""
    lines: list[str] = yaml.safe_load((folder / "conda.yaml").read_text())["dependencies"][-1]["pip"]
    return lines


@pytest.mark.parametrize(
    "text",
    [
        "import mlflow",
        "from mlflow import log_metric",
        "import mlflow.pytorch, pandas, pyarrow",
        "def log():\n    import mlflow\n",
        "import beside",
        "from lightning.pytorch.loggers import MLFlowLogger",
        "import lightning.pytorch as pl\npl.Trainer(logger=pl.loggers.MLFlowLogger())",
        "import lightning\nlogger = 'lightning.pytorch.loggers.MLFlowLogger'",
        "from transformers import TrainingArguments\nTrainingArguments('out', report_to=['mlflow'])",
        "import accelerate\naccelerate.Accelerator(log_with='mlflow')",
    ],
)
def test_mlflow_is_one_that_azure_takes(text: str, tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("import mlflow.pyfunc\n")
    (tmp_path / "train.py").write_text(text + "\n")
    said = init(tmp_path, "train.py")
    lines = pip_lines(tmp_path)
    assert {"mlflow<3", "azureml-mlflow"} <= {line.partition("==")[0] for line in lines}
    assert any("conda.yaml has mlflow<3, where 3." in note for note in said["unread"])
    if "pyarrow" in text:
        assert "pyarrow<20" in lines, "MLflow 2 takes none that is later"


def test_scripts_without_mlflow_get_none(tmp_path: Path) -> None:
    text = (
        "import numpy\nfrom transformers import TrainingArguments\nTrainingArguments('mlflow-runs', report_to='none')\n"
    )
    (tmp_path / "train.py").write_text(f"{text}# mlflow, MLFlowLogger\n")
    init(tmp_path, "train.py")
    assert not [line for line in pip_lines(tmp_path) if "mlflow" in line]


@pytest.mark.parametrize(
    ("listed", "written", "is_said"),
    [
        ("mlflow", {"mlflow<3", "azureml-mlflow"}, True),
        ("mlflow>=2.9", {"mlflow<3,>=2.9", "azureml-mlflow"}, True),
        ("mlflow-skinny\npyarrow>=17", {"mlflow-skinny<3", "pyarrow<20,>=17", "azureml-mlflow"}, True),
        ("mlflow==2.19.0", {"mlflow==2.19.0", "azureml-mlflow"}, True),
        ("azureml-mlflow", {"mlflow-skinny<3", "azureml-mlflow"}, True),
        ("-r more/list.txt", {"mlflow<3", "azureml-mlflow"}, True),
        ("mlflow==3.15.0", {"mlflow==3.15.0"}, True),
        ("mlflow<3\nazureml-mlflow", {"mlflow<3", "azureml-mlflow"}, False),
    ],
)
def test_a_list_with_another_mlflow_is_named(listed: str, written: set[str], is_said: bool, tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "list.txt").write_text("mlflow\n")
    (tmp_path / "requirements.txt").write_text(f"{listed}\n")
    (tmp_path / "train.py").write_text("import mlflow\n")
    said = init(tmp_path, "train.py")["unread"]
    assert set(pip_lines(tmp_path)) == written
    assert [note for note in said if "write 'mlflow<3' and 'azureml-mlflow' there" in note] == said
    assert bool(said) == is_said
    assert (tmp_path / "requirements.txt").read_text() == f"{listed}\n"


@pytest.mark.parametrize(
    ("listed", "said"),
    [
        ("mlflow", "names mlflow."),
        ("conda-forge::mlflow=3.1", "names mlflow==3.1.*."),
        ("pip: [mlflow-skinny>=3]", "names mlflow-skinny>=3."),
        ("pip: ['mlflow-skinny<3', azureml-mlflow]", ""),
    ],
)
def test_a_conda_file_with_another_mlflow_is_named(listed: str, said: str, tmp_path: Path) -> None:
    text = f"dependencies:\n- python=3.11\n- {listed}\n"
    (tmp_path / "environment.yml").write_text(text)
    (tmp_path / "train.py").write_text("import mlflow\n")
    notes = init(tmp_path, "train.py")["unread"]
    assert [said in note for note in notes] == ([True] if said else [])
    assert (tmp_path / "environment.yml").read_text() == text


def test_nothing_is_overwritten_and_nothing_half_written(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print(1)\n")
    (tmp_path / ".gitignore").write_text("secret.txt\n")
    (tmp_path / "component.yaml").write_text("mine\n")
    before = {path: path.read_text() for path in tmp_path.iterdir()}
    done = allranks("init", "train.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "there already, with other contents: component.yaml." in done.stderr
    assert {path: path.read_text() for path in tmp_path.iterdir()} == before
    (tmp_path / "pipeline.yml").mkdir()
    assert allranks("init", "train.py", "--force", cwd=tmp_path).returncode == 2
    assert {path: path.read_text() for path in tmp_path.iterdir() if path.is_file()} == before
    (tmp_path / "pipeline.yml").rmdir()
    init(tmp_path, "train.py", "--force")
    assert "secret.txt" in (tmp_path / ".amlignore").read_text().splitlines(), "of two ignore files the first counts"


def test_a_name_that_a_shell_would_read_is_quoted(tmp_path: Path) -> None:
    (tmp_path / "my $(id).py").write_text("print(1)\n")
    (tmp_path / ".gitignore").write_bytes(b"caf\xe9\n")
    done = allranks("init", "my $(id).py", cwd=tmp_path)
    assert (done.returncode, ".gitignore is not UTF-8 text: byte 3" in done.stderr) == (2, True), done.stderr
    (tmp_path / ".gitignore").unlink()
    init(tmp_path, "my $(id).py")
    assert component(tmp_path)["command"].split("\n")[0] == "python 'my $(id).py'"


def test_a_notebook_becomes_a_script_beside_it(tmp_path: Path) -> None:
    cell = {
        "cell_type": "code",
        "source": "import argparse\np = argparse.ArgumentParser()\np.add_argument('--n', type=int)",
    }
    (tmp_path / "look.ipynb").write_text(json.dumps({"nbformat": 4, "metadata": {}, "cells": [cell]}))
    init(tmp_path, "look.ipynb")
    assert component(tmp_path)["inputs"] == {"n": {"type": "integer", "optional": True}}
    assert (tmp_path / "look.py").read_text().startswith("# %% cell 1 of look.ipynb\nimport argparse\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give one of SCRIPT and --template NAME."),
        (["--template", "dpd"], "there is no template 'dpd' (did you mean 'ddp'?)."),
        (["lost.py"], "the script 'lost.py' is not there."),
        (["train.py", "--scale", "2x2"], "--scale 2x2: without a distribution there is one process."),
        (["train.py", "--torchrun"], "torchrun starts ranks of PyTorch."),
    ],
)
def test_what_is_wrong_is_told_and_nothing_written(tmp_path: Path, arguments: list[str], message: str) -> None:
    (tmp_path / "train.py").write_text("print(1)\n")
    done = allranks("init", *arguments, cwd=tmp_path)
    assert (done.returncode, message in done.stderr) == (2, True), done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


@pytest.mark.parametrize("template", template_lines())
def test_a_template_is_a_script_with_a_component(tmp_path: Path, template: str) -> None:
    said = init(tmp_path, "--template", template)
    document = component(tmp_path / template)
    assert said["inputs"][0] == "epochs"
    assert said["next"] == f"allranks run {template}"
    assert ("torchrun" in document["command"]) == (template == "torchrun")
    expected = {"plain": "none", "horovod": "mpi", "tensorflow": "tensorflow"}.get(template, "pytorch")
    assert document.get("distribution", {"type": "none"})["type"] == expected


RANKS = {"plain": "", "tensorflow": "on 2 replicas", "ddp": "on 2 ranks"}
SCALES = {"ddp": ["--scale", "2x1"]}
"""Other templates run at the scale that their component has."""
MADE = {"lightning": "", "tensorflow": "model.weights.h5"}
NEEDS = {"plain": "torch", "tensorflow": "tensorflow", "lightning": "lightning", "horovod": "horovod.torch"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "template",
    [name if name == "ddp" else pytest.param(name, marks=pytest.mark.exhaustive) for name in template_lines()],
)
def test_a_template_runs_at_once(tmp_path: Path, template: str) -> None:
    pytest.importorskip(NEEDS.get(template, "torch"))
    init(tmp_path, "--template", template, "--out", "mine")
    scale = SCALES.get(template, [])
    document = json.loads(allranks("run", "mine", "epochs=2", *scale, "--json", cwd=tmp_path).stdout)
    assert document["status"] == "succeeded", document
    made = Path(document["outputs"]["output_dir"]) / MADE.get(template, "model.pt")
    assert made.exists()
    logs = Path(document["steps"]["train"]["folder"]) / "user_logs"
    said = "".join(path.read_text() for path in sorted(logs.iterdir()))
    assert RANKS.get(template, "on 4 ranks") in said
    if template == "fsdp":
        import torch

        weights = torch.load(made, weights_only=True)
        assert weights["0.weight"].shape == (16, 32), "the whole, not the part of rank 0"
        first, last = (float(loss) for loss in re.findall(r"loss ([\d.]+)", said))
        assert last < first
