"""The script that a command starts is in its snapshot, or lint says so before machines are paid for."""

from __future__ import annotations

from pathlib import Path

import pytest

from allranks.spec import check_document, read_spec

COMPONENT = """
type: command
name: work
code: CODE
additional_includes: [./library]
environment: azureml:e:1
inputs: {n: {type: string, default: a.py}}
command: |
"""


def warnings(folder: Path, command: str, code: str = "./src") -> list[str]:
    (folder / "src/inner").mkdir(parents=True)
    (folder / "library").mkdir()
    for name in ("src/train.py", "src/inner/deep.py", "library/tool.py"):
        (folder / name).touch()
    file = folder / "work.yaml"
    file.write_text(COMPONENT.replace("CODE", code) + "".join(f"  {line}\n" for line in command.splitlines()))
    found = [problem for problem in check_document(read_spec(file)) if "starts '" in problem.message]
    assert all(problem.severity == "warning" and problem.where == "command" for problem in found)
    return [f"{problem.message} {problem.hint}" for problem in found]


@pytest.mark.parametrize(
    ("command", "script"),
    [
        ("python trian.py --config other.yaml", "trian.py"),
        ("python -u ./inner/depe.py", "./inner/depe.py"),
        ("python library/tols.py", "library/tols.py"),
        ("torchrun --nproc_per_node 2 \\\n  trian.py", "trian.py"),
        ("python -m torch.distributed.run --nnodes 2 trian.py", "trian.py"),
        ("echo begin && NAME=x bash setup.sh; python train.py", "setup.sh"),
        ("python train.py\npython evaluate.py", "evaluate.py"),
    ],
)
def test_a_script_that_is_not_there(tmp_path, command, script):
    (one,) = warnings(tmp_path, command)
    assert f"starts '{script}', which is neither in '{tmp_path / 'src'}'" in one
    assert ("Did you mean 'train.py'?" in one) == (script == "trian.py")


@pytest.mark.parametrize(
    "command",
    [
        "python train.py --script other.py",
        "python ./train.py && python inner/deep.py && python library/tool.py",
        "python -c 'import a' b.py",
        "python ${{inputs.n}}",
        "python $HOME/a.py && python /opt/a.py && python ../a.py",
        "cd elsewhere && python a.py",
        "git clone https://example.com/x && python x/a.py",
        "python -m package.module",
        "echo 'python a.py'",
        "python a.py 'not closed",
    ],
)
def test_what_is_there_or_cannot_be_known(tmp_path, command):
    assert warnings(tmp_path, command) == []


def test_code_that_is_one_file(tmp_path):
    assert warnings(tmp_path, "python train.py", code="./src/train.py") == []


@pytest.mark.parametrize(
    ("script", "unused"),
    [
        ("import os\nprint(os.environ['AZUREML_PARAMETER_rate'])", ["inputs.depth"]),
        ("import os\nprint(os.environ['AZURE_ML_INPUT_depth'])", ["inputs.rate"]),
        ('names = ["rate"]\nprint([os.environ[f"AZUREML_PARAMETER_{name}"] for name in names])', []),
        ('PREFIX = "AZUREML_PARAMETER_"', []),
        ("print('AZUREML_PARAMETER_rates')", ["inputs.depth", "inputs.rate"]),
        ("", ["inputs.depth", "inputs.rate"]),
    ],
)
def test_inputs_that_a_script_reads_from_variables(tmp_path, script, unused):
    (tmp_path / "src/inner").mkdir(parents=True)
    (tmp_path / "src/a.py").touch()
    (tmp_path / "src/inner/deep.py").write_text(script)
    (tmp_path / "a.yaml").write_text(
        "type: command\nname: a\ncode: ./src\ncommand: python a.py\nenvironment: azureml:e:1\n"
        "inputs: {depth: {type: integer}, rate: {type: number}}\n"
    )
    problems = check_document(read_spec(tmp_path / "a.yaml"))
    assert [(one.where, one.message) for one in problems] == [
        (where, "the command does not use this input.") for where in unused
    ]


def test_inputs_of_a_script_in_the_image(tmp_path):
    text = "type: command\nname: a\ncommand: python /azureml/run.py\nenvironment: azureml:e:1\ninputs: {n: {type: number}}\n"
    (tmp_path / "a.yaml").write_text(text)
    assert check_document(read_spec(tmp_path / "a.yaml")) == []
