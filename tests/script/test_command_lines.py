"""What `allranks init` makes of a script's command line starts the script with these arguments, whoever reads them."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from allranks.cli.main import main
from allranks.spec import check_document, check_quotes, read_spec
from allranks.spec.expressions import render_command

SUBPARSERS = """\
import argparse
common = argparse.ArgumentParser(add_help=False)
common.add_argument("--data-dir", required=True)
def add_optimizer(to):
    group = to.add_argument_group("optimizer")
    group.add_argument("--lr", type=float, default=0.1)
def parser():
    made = argparse.ArgumentParser(description="Trains or tests.")
    made.add_argument("--tags", nargs="*", default=["a", "b"])
    made.add_argument("--seed", type=int, default=1)
    modes = made.add_subparsers(dest="mode", required=True)
    one = modes.add_parser("train", parents=[common])
    one.add_argument("rows", type=int)
    one.add_argument("--widths", type=int, nargs="+", default=[4, 8])
    add_optimizer(one)
    one = modes.add_parser("test")
    one.add_argument("--split", choices=["val", "test"], default="val")
    remote = modes.add_parser("remote").add_subparsers(dest="what")
    remote.add_parser("push").add_argument("--to", default="x")
    return made
if __name__ == "__main__":
    print(sorted(vars(parser().parse_args()).items()))
"""
GROUP = """\
import click
@click.group()
@click.option("--seed", default=1)
def cli(seed): print("seed", seed)
@cli.command()
@click.argument("rows", type=int)
@click.option("--amp/--no-amp", default=True)
def train_model(rows, amp): print(rows, amp)
@click.command("eval")
@click.option("--split", default="val")
def evaluate(split): print(split)
cli.add_command(evaluate)
if __name__ == "__main__": cli()
"""
APPS = """\
import typer
app = typer.Typer()
data = typer.Typer()
app.add_typer(data, name="data")
@app.callback()
def common(context: typer.Context, seed: int = 1): print("seed", seed)
@app.command()
def train(rows: int, amp: bool = True): print(rows, amp)
@data.command("make-it")
def make(count: int = 3): print("made", count)
if __name__ == "__main__": app()
"""
ABSL = """\
from absl import app, flags
flags.DEFINE_integer("epochs", 2, "passes")
flags.DEFINE_bool("amp", True, "mixed precision")
flags.DEFINE_enum("kind", "a", ["a", "b"], "which")
NAMES = flags.DEFINE_list("names", ["x", "y"], "several")
flags.DEFINE_string("note", None, "a word")
flags.mark_flag_as_required("note")
def main(argv): print(flags.FLAGS.epochs, flags.FLAGS.amp, flags.FLAGS.kind, NAMES.value, flags.FLAGS.note)
if __name__ == "__main__": app.run(main)
"""
FIRE = """\
INFO: Showing help with the command 'main.py train -- --help'.

NAME
    main.py train - Trains.

SYNOPSIS
    main.py train ROWS <flags>

POSITIONAL ARGUMENTS
    ROWS

FLAGS
    -l, --lr=LR
        Default: 0.1
        the rate
    -a, --amp=AMP
        Type: bool
        Default: True
    -w, --widths=WIDTHS
        Default: [4, 8]
"""
JSONARGPARSE = """\
usage: main.py [--config CONFIG] [--amp {true,false}] [--widths [ITEM,...]] [--lr LR] rows

Trains.

positional arguments:
  rows                  (required, type: int)

options:
  -h, --help            Show this help message and exit.
  --config CONFIG       Path to a configuration file.
  --print_config [=flags]
                        Print the configuration after applying all other arguments and exit.
  --amp {true,false}    (type: bool, default: True)
  --widths [ITEM,...], --widths+ [ITEM,...]
                        (type: list[int], default: [4, 8])
  --lr LR               the rate (type: float, default: 0.1)
"""
HYDRA = """\
import hydra
@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(cfg): print(cfg.epochs, cfg.model.width, cfg.optimizer.lr, cfg.amp, cfg.name, cfg.note)
main()
"""
CONFIG = """\
defaults: [{model: small}, _self_, {override hydra/job_logging: none}]
epochs: 3
optimizer: {lr: 0.1, betas: [0.9, 0.99]}
amp: false
name: my run
note: ???
made: ${epochs}
"""
LIGHTNING = """\
usage: main.py [options] fit [-c CONFIG] [--trainer CONFIG] [--trainer.strategy STRATEGY] [--trainer.devices DEVICES]
                             [--trainer.num_nodes NUM_NODES] [--trainer.default_root_dir DEFAULT_ROOT_DIR]
                             [--model CONFIG] [--model.width WIDTH] [--model.amp {true,false}] --data.rows ROWS

options:
  -h, --help            Show this help message and exit.
  -c CONFIG, --config CONFIG
                        Path to a configuration file in json or yaml format.

Customize every aspect of training via flags:
  --trainer.strategy.help [CLASS_PATH_OR_NAME]
                        Show the help for the given subclass of Strategy and exit.
  --trainer.strategy STRATEGY
                        Supports strategies. (type: Union[str, Strategy], default: auto, known subclasses:
                        lightning.pytorch.strategies.DDPStrategy, lightning.pytorch.strategies.DeepSpeedStrategy)
  --trainer.devices DEVICES, --trainer.devices+ DEVICES
                        The devices to use. (type: Union[list[int], str, int], default: auto)
  --trainer.num_nodes NUM_NODES
                        Number of GPU nodes. (type: int, default: 1)
  --trainer.default_root_dir DEFAULT_ROOT_DIR
                        Default path for logs. (type: Union[str, Path, null], default: null)
  --model.width WIDTH   (type: int, default: 8)
  --model.amp {true,false}
                        (type: bool, default: True)
  --data.rows ROWS      (required, type: int)
"""
OF_LIGHTNING = (
    "usage: main.py [-c CONFIG] {fit,test} ...\n\noptions:\n  -c CONFIG, --config CONFIG\n             a file\n"
)


def printing(helps: dict[str, str]) -> str:
    """A script that prints such a help for each subcommand, in place of a library that is not installed here."""
    return f"import torch.distributed, sys\nprint({helps!r}[' '.join(sys.argv[1:-1])])\n"


@pytest.fixture(autouse=True)
def _torch(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let scripts import an empty torch.distributed, for the true one takes them seconds."""
    folder = tmp_path_factory.mktemp("packages")
    (folder / "torch/distributed").mkdir(parents=True)
    (folder / "torch/__init__.py").touch()
    (folder / "torch/distributed/__init__.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)


@dataclass(frozen=True)
class Case:
    """A script, the subcommand that is asked for, the inputs that are given and what the script is then to print.

    ``command`` is the command behind the script's name, for libraries that are not installed everywhere. Where
    ``by_help`` is false the script's text is read.
    """

    text: str
    asked: str
    inputs: str
    printed: str = ""
    package: str = "argparse"
    command: str = ""
    files: dict[str, str] = field(default_factory=dict)
    by_help: bool = True


TAGS = "[('data_dir', '/d'), ('lr', 0.1), ('mode', 'train'), ('rows', 5), ('seed', 7), ('tags', ['a', 'b'])"
CASES = {
    "subparsers": Case(SUBPARSERS, "train", "rows=5 seed=7 data_dir=/d widths=1", f"{TAGS}, ('widths', [1])]"),
    "subparsers within": Case(
        SUBPARSERS,
        "remote push",
        "to=y",
        "[('mode', 'remote'), ('seed', 1), ('tags', ['a', 'b']), ('to', 'y'), ('what', 'push')]",
    ),
    "a group of click": Case(GROUP, "train-model", "rows=5 amp=false", "seed 1\n5 False", "click"),
    "a command that is added": Case(GROUP, "eval", "split=test", "seed 1\ntest", "click"),
    "an app of typer": Case(APPS, "train", "rows=5 amp=false seed=2", "seed 2\n5 False", "typer"),
    "an app within": Case(APPS, "data make-it", "", "seed 1\nmade 3", "typer"),
    "absl": Case(ABSL, "", "note=hi amp=false", "2 False a ['x', 'y'] hi", "absl"),
    "fire": Case(
        printing(
            {
                "train": FIRE,
                "": "INFO: Showing help with the command\n\nFLAGS\n    -s, --seed=SEED\n        Default: 1\n",
            }
        ),
        "train",
        "rows=5 lr=0.5 amp=false",
        "",
        "",
        "--seed 1 train 5 --lr 0.5 --amp=False --widths '[4, 8]'",
    ),
    "a function of jsonargparse": Case(
        printing({"": JSONARGPARSE}), "", "rows=5 amp=false", "", "", "5 --amp false --widths '[4, 8]' --lr 0.1"
    ),
    "hydra": Case(
        HYDRA,
        "",
        "note=hi model=big amp=true",
        "3 40 0.1 True my run hi",
        "hydra",
        "model=big epochs=3 optimizer.lr=0.1 optimizer.betas='[0.9, 0.99]' amp=true note=hi hydra.run.dir=OUT",
        {"conf/config.yaml": CONFIG, "conf/model/small.yaml": "width: 4\n", "conf/model/big.yaml": "width: 40\n"},
        by_help=False,
    ),
    "LightningCLI": Case(
        printing({"": OF_LIGHTNING, "fit": LIGHTNING}),
        "fit",
        "data_rows=64 model_amp=false",
        "",
        "",
        "fit --trainer.default_root_dir OUT --model.amp false --data.rows 64 --trainer.num_nodes 2 --trainer.devices 3",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_script_gets_the_arguments_of_its_component(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES[name]
    monkeypatch.chdir(tmp_path)
    for file, text in ({"main.py": case.text} | case.files).items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text)
    asked = ["--subcommand", case.asked] if case.asked else []
    assert main(["init", "main.py", *(["--by-help"] if case.by_help else []), *asked]) == 0
    document = read_spec(tmp_path / "component.yaml")
    assert [*check_document(document), *check_quotes(document)] == []
    command = filled_command(tmp_path, dict(one.split("=", 1) for one in case.inputs.split()))
    if case.command:
        words = subprocess.run(
            ["bash", "-c", command.replace("python main.py", "printf '%s\\n'", 1)],
            env=environment(),
            capture_output=True,
            text=True,
            check=True,
        )
        assert words.stdout.splitlines() == shlex.split(case.command.replace("OUT", str(tmp_path / "out")))
    if case.package and find_spec(case.package) is not None:
        done = subprocess.run(["bash", "-c", command], env=environment(), capture_output=True, text=True, check=False)
        assert done.stdout.strip() == case.printed, done.stderr


def filled_command(folder: Path, given: dict[str, str]) -> str:
    """The component's command with these inputs, and else its defaults."""
    said: dict[str, Any] = yaml.safe_load((folder / "component.yaml").read_text())
    inputs = {name: given.get(name, one.get("default")) for name, one in said.get("inputs", {}).items()}
    assert set(given) <= set(inputs)
    assert [name for name, one in inputs.items() if one is None and not said["inputs"][name].get("optional")] == []
    texts = {name: None if one is None else str(one) for name, one in inputs.items()}
    return render_command(said["command"], texts, dict.fromkeys(said.get("outputs", {}), str(folder / "out")))


def environment() -> dict[str, str]:
    """Of a rank of six on two nodes."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return os.environ | {"PATH": path, "AZUREML_NODE_COUNT": "2", "WORLD_SIZE": "6"}


LOGGER = "from absl import logging\nlogging.info('x')\n"
WAYS_OUT = ("Add --by-help: `main.py --help` is then run for at most 60 s", "`allranks init --template plain`")
TOLD = [
    ("import sys\nfor word in sys.argv[1:]: print(word)\n", "main.py:2: arguments of sys.argv are not read."),
    (HYDRA, "main.py:2: Hydra's configuration is not in conf/config.yaml; write key=value into the command"),
    (LOGGER, ""),
]
ONLY_BY_HELP = [
    (SUBPARSERS, "main.py:11: subcommands are not read from the text of a script."),
    (GROUP, "main.py:1: arguments of click are not read"),
    (APPS, "main.py:1: arguments of typer are not read"),
    (ABSL, "main.py:1: arguments of absl are not read"),
    ("import fire\nfire.Fire(print)\n", "main.py:1: arguments of Fire are not read"),
    ("from jsonargparse import CLI\nCLI(print)\n", "main.py:1: arguments of jsonargparse are not read"),
    ("from lightning.pytorch.cli import LightningCLI\nLightningCLI()\n", "arguments of LightningCLI are not read"),
    ("import tyro\ntyro.cli(print)\n", "main.py:1: arguments of tyro are not read"),
]


@pytest.mark.parametrize(
    ("text", "arguments", "code", "said"),
    [
        *((text, "", 0, (said,)) for text, said in TOLD),
        *((text, "", 2, (said, *WAYS_OUT)) for text, said in ONLY_BY_HELP),
        (SUBPARSERS, "--by-help", 2, ("main.py has subcommands: train, test, remote.",)),
        (
            SUBPARSERS,
            "--by-help --subcommand trian",
            2,
            ("main.py has no subcommand 'trian': it has train, test, remote.",),
        ),
        (GROUP, "--by-help", 2, ("main.py has subcommands: eval, train-model.",)),
        (APPS, "--by-help", 2, ("main.py has subcommands: train, data.",)),
        (
            printing({"": JSONARGPARSE}),
            "--by-help --subcommand train",
            2,
            ("main.py --help tells of no subcommand 'train'.",),
        ),
        (LOGGER, "--subcommand train", 2, ()),
    ],
)
def test_what_is_not_read_is_told_with_what_to_do_and_nothing_written(
    text: str,
    arguments: str,
    code: int,
    said: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "main.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    assert main(["init", "main.py", *arguments.split()]) == code
    printed = capsys.readouterr().err
    assert [words for words in said if words not in printed] == []
    assert code == 0 or [path.name for path in tmp_path.iterdir()] == ["main.py"]
