"""From what was read of a script to the files of a component: component.yaml, pipeline.yml, conda.yaml, .amlignore."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from allranks.script.arguments import SEVERAL, ScriptArgument
from allranks.script.command import ScriptPort, argument_lines, start_lines
from allranks.script.launches import RecognisedLaunch
from allranks.script.packages import MADE, NeededPackages, conda_text
from allranks.script.paths import FILE, FOLDER, WRITTEN, PathRole, path_role, used_as
from allranks.script.sources import utf8_text
from allranks.script.subcommands import Subcommand
from allranks.script.target import step_name
from allranks.sizes.builds import build_table

_SCHEMA = "$schema: https://azuremlschemas.azureedge.net/latest/{}.schema.json\n"
_TRUTHS = ("true", "false")
_GPU_PACKAGES = (
    "torch",
    "tensorflow",
    "jax",
    "cupy",
    "accelerate",
    "lightning",
    "transformers",
    "deepspeed",
    "xgboost",
)
_LEFT_OUT = (
    "component.yaml",
    "pipeline.yml",
    ".amlignore",
    ".git/",
    ".venv/",
    "venv/",
    "__pycache__/",
    "*.pyc",
    ".ipynb_checkpoints/",
    ".allranks/",
    "wandb/",
    "mlruns/",
    "lightning_logs/",
    "outputs/",
    "logs/",
)
_FILE_HELP = re.compile(
    r"^(?!.*\b(folder|directory|dir|files)\b).*(\bfile\b|\bcsv\b|\.(csv|json|parquet|npy|txt|pt|pkl)\b)"
)
_MOST_CONFIG = 1_000_000  # bytes: a larger file is data, and no part of the code


@dataclass(frozen=True)
class ScriptComponent:
    """What the files of a component say.

    Attributes:
        script: the file that is started; ``code`` is the folder that becomes the snapshot, ``folder`` that of the YAML.
        scale: nodes, and processes on each.
        uses_torchrun: whether each node starts torchrun, which starts the processes.
        environment: the name of a registered one; empty for what ``packages`` say.
        text: of the script and its modules: whether a path is a file shows in how it is used.
        subcommand: of the script's, the one that is started.
        fixed: what stands at the end of the command.
    """

    script: Path
    code: Path
    folder: Path
    launch: RecognisedLaunch
    arguments: tuple[ScriptArgument, ...]
    packages: NeededPackages
    scale: tuple[int, int]
    description: str = ""
    uses_torchrun: bool = False
    environment: str = ""
    text: str = ""
    subcommand: Subcommand = ()
    fixed: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The component's name, which is the script's, with its subcommand's."""
        return step_name("_".join([self.script.stem, *(one for one in self.subcommand if one != self.script.stem)]))

    @cached_property
    def ports(self) -> tuple[ScriptPort, ...]:
        """The arguments in their order; those that are paths are data, but for a small file beside the script."""
        return tuple(map(self._port, self.arguments))

    @property
    def open_values(self) -> list[str]:
        """The literals that somebody has to give: a pipeline job has a value for each, and so there is none."""
        return [port.argument.name for port in self.ports if port.role is None and _is_open(port.argument)]

    def texts(self) -> dict[Path, str]:
        """The files that are written, with what is in each."""
        files = {self.folder / "component.yaml": self._component()}
        if not self.open_values:
            files[self.folder / "pipeline.yml"] = self._pipeline()
        if self._writes_conda:
            build = build_table().builds["torch"]
            index = build.index if self.packages.names(f"torch=={build.version}") else ""
            files[self.folder / "conda.yaml"] = conda_text(self.name, self.packages.lines, index)
        if not (self.code / ".amlignore").exists():
            files[self.code / ".amlignore"] = self._ignore()
        return files

    @property
    def _writes_conda(self) -> bool:
        return not self.environment and self.packages.conda_file is None

    def _port(self, argument: ScriptArgument) -> ScriptPort:
        if argument.type not in ("string", "path") or argument.choices or argument.form == SEVERAL:
            return ScriptPort(argument)
        default = argument.default if isinstance(argument.default, str) else ""
        role = path_role(argument.name, default, is_path=argument.type == "path")
        if role is None:
            return ScriptPort(replace(argument, type="string"))
        shown = used_as(argument.name, self.text)
        if shown:
            role = replace(role, type=shown)
        elif role.type == FOLDER and not default and _FILE_HELP.search(argument.help.lower()):
            role = replace(role, type=FILE)
        place = self.code / default if default else None
        if role.use == WRITTEN or place is None or not place.exists():
            return ScriptPort(argument, role)
        if place.is_file() and place.stat().st_size <= _MOST_CONFIG and not Path(default).is_absolute():
            return ScriptPort(replace(argument, type="string"))
        return ScriptPort(argument, PathRole(role.use, FILE if place.is_file() else FOLDER), place)

    def _component(self) -> str:
        inputs = {port.argument.name: _declared_input(port) for port in self.ports if not port.is_output}
        if self.uses_torchrun:
            inputs["processes_per_node"] = {
                "type": "integer",
                "default": self.scale[1],
                "min": 1,
                "description": "Ranks on each node.",
            }
        outputs = {port.argument.name: _declared_output(port) for port in self.ports if port.is_output}
        document: dict[str, Any] = {"type": "command", "name": self.name, "version": "1"}
        document["display_name"] = self.name.replace("_", " ").capitalize()
        document |= {"description": self.description} if self.description else {}
        document |= ({"inputs": inputs} if inputs else {}) | ({"outputs": outputs} if outputs else {})
        document["code"] = _relative(self.code, self.folder)
        document["environment"] = self._environment()
        document |= self._counts()
        text = _SCHEMA.format("commandComponent") + f"# {self.launch.words}.\n" + _dumped(document)
        return text + "command: >-\n" + "".join(f"  {line}\n" for line in self._command())

    def _environment(self) -> str | dict[str, str]:
        if self.environment:
            return self.environment
        table = build_table()
        conda = self.packages.conda_file
        on_gpu = conda is not None or any(self.packages.names(name) for name in _GPU_PACKAGES)
        file = "./conda.yaml" if conda is None else _relative(conda, self.folder)
        return {"image": table.base if on_gpu else table.plain_base, "conda_file": file}

    def _counts(self) -> dict[str, Any]:
        kind, (nodes, processes) = self.launch.distribution, self.scale
        if not kind:
            return {}
        if kind == "tensorflow":
            counts: dict[str, Any] = {"worker_count": nodes}
        else:
            counts = {"process_count_per_instance": 1 if self.uses_torchrun else processes}
        return {"distribution": {"type": kind, **counts}, "resources": {"instance_count": nodes}}

    def _command(self) -> Iterator[str]:
        yield from start_lines(Path(os.path.relpath(self.script, self.code)), uses_torchrun=self.uses_torchrun)
        yield from argument_lines(self.ports, self.subcommand)
        yield from self.fixed

    def _pipeline(self) -> str:
        inputs: dict[str, Any] = {}
        for port in self.ports:
            argument = port.argument
            if port.is_output:
                continue
            if port.role is not None and port.value is not None:
                inputs[argument.name] = {"type": port.role.type, "path": _relative(port.value, self.folder)}
            elif not port.is_optional:
                declared = _declared_input(port)
                first = str(argument.choices[0]) if argument.choices else {"type": declared["type"]}
                inputs[argument.name] = declared.get("default", first)
        outputs = {p.argument.name: {"type": p.role.type if p.role else FOLDER} for p in self.ports if p.is_output}
        step: dict[str, Any] = {"type": "command", "component": "./component.yaml"}
        step |= {"inputs": {name: f"${{{{parent.inputs.{name}}}}}" for name in inputs}} if inputs else {}
        step |= {"outputs": {name: f"${{{{parent.outputs.{name}}}}}" for name in outputs}} if outputs else {}
        document: dict[str, Any] = {"type": "pipeline", "display_name": self.name, "experiment_name": self.name}
        document["settings"] = {"default_compute": "serverless"}
        document |= ({"inputs": inputs} if inputs else {}) | ({"outputs": outputs} if outputs else {})
        document["jobs"] = {self.name: step}
        hint = "# A cluster of yours in place of serverless: azureml:NAME, or `allranks submit --compute NAME`.\n"
        return _SCHEMA.format("pipelineJob") + hint + _dumped(document)

    def _ignore(self) -> str:
        """Of Azure ML's two ignore files the first that is there counts, so the other one's lines stand in it."""
        lines = [f"{MADE} What the nodes do not need a copy of."]
        git = self.code / ".gitignore"
        if git.is_file():
            lines += ["# From .gitignore, which no longer counts:", *utf8_text(git).splitlines()]
        lines += _LEFT_OUT
        lines += ["conda.yaml"] if self._writes_conda else []
        for port in self.ports:
            if port.value is not None and port.value.resolve().is_relative_to(self.code.resolve()):
                name = port.value.resolve().relative_to(self.code.resolve()).as_posix()
                lines.append(f"/{name}/" if port.value.is_dir() else f"/{name}")
        return "\n".join(dict.fromkeys(lines)) + "\n"


def _is_open(argument: ScriptArgument) -> bool:
    return argument.required and argument.default is None and not argument.choices


def _declared_input(port: ScriptPort) -> dict[str, Any]:
    argument = port.argument
    kind = "string" if argument.type in ("boolean", "path") else argument.type
    said: dict[str, Any] = {"type": port.role.type if port.role else kind}
    if port.is_optional:
        said["optional"] = True
    elif port.role is None and argument.default is not None:
        default = argument.default
        said["default"] = str(default).lower() if isinstance(default, bool) else default
    if argument.type == "boolean":
        said["enum"] = list(_TRUTHS)
    elif argument.choices and port.role is None:
        said["enum"] = [str(one) if kind == "string" else one for one in argument.choices]
    said |= {key: value for key, value in (("min", argument.min), ("max", argument.max)) if value is not None}
    return said | ({"description": argument.help} if argument.help else {})


def _declared_output(port: ScriptPort) -> dict[str, Any]:
    said: dict[str, Any] = {"type": port.role.type if port.role else FOLDER}
    return said | ({"description": port.argument.help} if port.argument.help else {})


def _relative(path: Path, folder: Path) -> str:
    text = Path(os.path.relpath(path.resolve(), folder.resolve())).as_posix()
    return text if text.startswith(".") else f"./{text}"


def _dumped(document: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(document), sort_keys=False, width=110, allow_unicode=True)
