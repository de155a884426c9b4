"""A Python pipeline as the YAML that ``az ml job create --file`` takes."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from allranks.azure.python_target import read_python_document
from allranks.spec.model import LITERAL_TYPES
from allranks.spec.values import plain_number

_SCHEMA = "https://azuremlschemas.azureedge.net/latest/{}.schema.json"
_WIDTH = 120
_HEAD: tuple[str, ...] = ("display_name", "description", "experiment_name", "tags", "properties", "services")
_HEAD += ("identity", "compute", "settings")
_PLACE = ("type", "mode", "path_on_compute", "datastore")


def export_pipeline(target: str, file: Path) -> dict[Path, str]:
    """The YAML of ``FILE.py:FUNCTION`` as it would stand in ``file``, and the pipelines nested in it beside that.

    Components that were loaded from YAML are referred to by a path relative to ``file``; others stand inline. The
    schema of a pipeline job has no place for what its inputs take and its outputs are, so that stands in comments. An
    optional input without a value is written as an empty text, which the SDK leaves out of what it sends.

    Returns file to text, ``file`` first; raises as ``python_target.read_python_document``.
    """
    document = read_python_document(target, whole=True)
    file = file.absolute()
    files: dict[Path, str] = {file: ""}
    job = _relative(document, file, files)
    note = f"# Made by `allranks export {_shown(target, file)}`: change that, and export again.\n"
    parts = [note + _dump({"$schema": _SCHEMA.format("pipelineJob"), "type": "pipeline"} | _head(job))]
    parts.append(_inputs(document.get("inputs", {}), file.parent))
    parts += [_outputs(job.get("outputs", {})), _dump({"jobs": job["jobs"]})]
    files[file] = "\n".join(filter(None, parts))
    return files


def _shown(target: str, file: Path) -> str:
    """The target as one would give it beside the folder that holds the exported file."""
    path, _, function = target.rpartition(":")
    return f"{os.path.relpath(path, file.parent.parent)}:{function}"


def _head(job: Mapping[str, Any]) -> dict[str, Any]:
    head = {"name": job["job_name"]} if "job_name" in job else {}
    head |= {key: job[key] for key in _HEAD if key in job}
    if "compute" in head:
        head["compute"] = _asset(head["compute"])
    settings = dict(head.get("settings", {}))
    settings |= {key: _asset(settings[key]) for key in ("default_compute", "default_datastore") if key in settings}
    return head | ({"settings": settings} if settings else {})


def _inputs(inputs: Mapping[str, Any], folder: Path) -> str:
    """The inputs with their values, each below a comment that says what it takes."""
    text = "inputs:\n" if inputs else ""
    for name, declared in inputs.items():
        if isinstance(declared, dict):
            comment = " ".join(filter(None, (declared.get("description", ""), _rule(declared))))
            text += _port(name, _value(declared, folder), comment)
        else:  # a bare value, of a job that was itself loaded from YAML
            text += _port(name, declared)
    return text


def _outputs(outputs: Mapping[str, Mapping[str, Any]]) -> str:
    text = "outputs:\n" if outputs else ""
    for name, declared in outputs.items():
        settings = {key: value for key, value in declared.items() if key != "description"}
        text += _port(name, settings, declared.get("description", ""))
    return text


def _port(name: str, value: Any, comment: str = "") -> str:
    above = textwrap.wrap(comment, _WIDTH, initial_indent="  # ", subsequent_indent="  # ")
    return "\n".join([*above, textwrap.indent(_dump({name: value}), "  ")])


def _rule(declared: Mapping[str, Any]) -> str:
    """The type and range of an input in brackets: ``(integer, 1 to 64)``."""
    said = [str(declared.get("type", "uri_folder")) + (", optional" if declared.get("optional") else "")]
    low, high = plain_number(declared.get("min")), plain_number(declared.get("max"))
    if low is not None or high is not None:
        said.append(f"{low} to {high}" if None not in (low, high) else f"from {low}" if high is None else f"to {high}")
    said += [" | ".join(map(str, declared["enum"]))] if declared.get("enum") else []
    return f"({', '.join(said)})"


def _value(declared: Mapping[str, Any], folder: Path) -> Any:
    if "path" in declared:
        place = {key: declared[key] for key in _PLACE if key in declared}
        return place | {"path": _path(declared["path"], folder)}
    if declared["type"] not in LITERAL_TYPES and not declared.get("optional"):
        return {"type": declared["type"]}
    return declared.get("value", declared.get("default", ""))


def _relative(document: Mapping[str, Any], file: Path, files: dict[Path, str]) -> dict[str, Any]:
    """A pipeline's document with paths relative to ``file``; nested pipelines become files of their own."""
    steps = {name: _step(step, file, files) for name, step in document["jobs"].items()}
    return {key: value for key, value in document.items() if key != "name"} | {"jobs": steps}


def _step(step: Mapping[str, Any], file: Path, files: dict[Path, str]) -> dict[str, Any]:
    found = dict(step)
    key = "trial" if "trial" in found else "component"
    component = found.get(key)
    if isinstance(component, dict):
        found[key] = _nested(component, file, files) if "jobs" in component else _inline(component, file.parent)
    elif component is not None:
        found[key] = _path(component, file.parent)
    if "compute" in found:
        found["compute"] = _asset(found["compute"])
    found["inputs"] = {name: _step_value(value, file.parent) for name, value in found.get("inputs", {}).items()}
    order = ("type", "display_name", key, "inputs", "outputs")
    rest = (name for name in found if name not in order)
    return {name: found[name] for name in (*order, *rest) if found.get(name)}


def _nested(component: Mapping[str, Any], file: Path, files: dict[Path, str]) -> str:
    """Azure ML's YAML takes a nested pipeline by its file only."""
    own = file.with_name(f"{file.stem}.{component['name']}.yaml")
    files[own] = _dump(
        {"$schema": _SCHEMA.format("pipelineComponent")} | dict(component) | _relative(component, own, files)
    )
    return f"./{own.name}"


def _inline(component: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    found = dict(component)
    if "task" in found and isinstance(found["task"], dict):
        found["task"] = _inline(found["task"], folder)
    if "code" in found:
        found["code"] = _path(found["code"], folder)
    if "additional_includes" in found:
        found["additional_includes"] = [_path(include, folder) for include in found["additional_includes"]]
    return found


def _step_value(value: Any, folder: Path) -> Any:
    return value | {"path": _path(value["path"], folder)} if isinstance(value, dict) and "path" in value else value


def _path(path: str, folder: Path) -> str:
    """A local path as it is written in a file of ``folder``; addresses stay."""
    if not Path(path).is_absolute():
        return path
    relative = os.path.relpath(path, folder)
    return relative if relative.startswith(".") else f"./{relative}"


def _asset(name: Any) -> Any:
    return name if not isinstance(name, str) or name.startswith(("azureml:", "$")) else f"azureml:{name}"


class _Dumper(yaml.SafeDumper):
    """Lists stand below their key, indented, as everywhere in the library's YAML."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002
        """Indent lists too."""
        super().increase_indent(flow, False)


def _dump(document: Any) -> str:
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_WIDTH)
