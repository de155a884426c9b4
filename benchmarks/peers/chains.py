"""The chains that every way of running steps is given: the same commands, one after the other."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
COMPONENTS = ("prepare_data", "train_ddp", "evaluate")
EPOCHS = "5"


@dataclass(frozen=True, slots=True)
class ChainStep:
    """One step: a command in a folder, or nothing to do."""

    name: str
    command: tuple[str, ...] = ()
    folder: str = ""


@dataclass(frozen=True, slots=True)
class StepChain:
    """Steps one after the other, by name of ours: `nothing`, or a component of the library."""

    title: str
    kinds: tuple[str, ...]

    @property
    def trains(self) -> bool:
        """Whether there is something to compute in it."""
        return "train_ddp" in self.kinds


CHAINS = (
    StepChain("2 null steps", ("nothing",) * 2),
    StepChain("10 null steps", ("nothing",) * 10),
    StepChain("prepare, train", ("prepare_data", "train_ddp")),
    StepChain("prepare, 8 null steps, train", ("prepare_data", *("nothing",) * 8, "train_ddp")),
    StepChain("prepare, train, evaluate", COMPONENTS),
)


def copy_components(folder: Path) -> None:
    """Put each component's files together, as a user has them who starts the scripts by hand."""
    for name in COMPONENTS:
        shutil.copytree(ROOT / "components" / name, folder / name)
        shutil.copytree(ROOT / "shared", folder / name / "shared", ignore=shutil.ignore_patterns("__pycache__"))


def steps_of(chain: StepChain, folder: Path, out: Path) -> list[ChainStep]:
    """The commands of a chain, with torchrun for the two ranks of each component, and outputs in `out`."""
    ports = [word for port in ("model", "checkpoints", "metrics") for word in (f"--{port}", f"{out}/{port}")]
    data = ["--data", f"{out}/data"]
    words: Mapping[str, list[str]] = {
        "prepare_data": ["--output-data", f"{out}/data"],
        "train_ddp": [*data, "--epochs", EPOCHS, *ports],
        "evaluate": [*data, "--model", f"{out}/model", "--report", f"{out}/report"],
    }
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    return [
        ChainStep(f"s{number}")
        if kind == "nothing"
        else ChainStep(f"s{number}", (*torchrun, f"{kind}.py", *words[kind]), str(folder / kind))
        for number, kind in enumerate(chain.kinds)
    ]


def write_steps(steps: list[ChainStep], file: Path) -> None:
    """Write the steps for the script of a peer."""
    file.write_text(json.dumps([asdict(step) for step in steps]))


def pipeline_of(chain: StepChain) -> str:
    """The chain as a pipeline of ours."""
    lines, last_data, last_model = ["type: pipeline", "jobs:"], "", ""
    for number, kind in enumerate(chain.kinds):
        name, before = f"s{number}", f"s{number - 1}"
        lines.append(f"  {name}:")
        after = f'"${{{{parent.jobs.{before}.outputs.{_port(chain.kinds[number - 1])}}}}}"' if number else ""
        if kind == "nothing":
            lines += ["    type: command", "    command: 'true'", "    environment: azureml:none:1"]
            lines += [f"    inputs: {{before: {after}}}"] if after else []
            lines += ["    outputs: {out: {type: uri_folder}}"]
            continue
        lines += [f"    component: {ROOT}/components/{kind}/component.yaml"]
        lines += ["    distribution: {type: pytorch, process_count_per_instance: 2}"]
        if kind == "prepare_data":
            last_data = f'"${{{{parent.jobs.{name}.outputs.data}}}}"'
        elif kind == "train_ddp":
            last_model = f'"${{{{parent.jobs.{name}.outputs.model}}}}"'
            lines += [f"    inputs: {{data: {last_data}, epochs: {EPOCHS}}}"]
        else:
            lines += [f"    inputs: {{data: {last_data}, model: {last_model}}}"]
    return "\n".join(lines) + "\n"


def _port(kind: str) -> str:
    return {"nothing": "out", "prepare_data": "data", "train_ddp": "model"}[kind]
