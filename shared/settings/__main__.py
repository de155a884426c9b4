"""``python -m shared.settings FOLDER ...``, in the tree's root: the ports of the components in these folders, as JSON.

A component's class `Settings` stands in settings.py of its folder, or else in the script of its name. A folder without
one is left out: its component.yaml is written by hand.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from shared.settings.fields import Input, Output, Port, ports_of


def main(folders: list[str]) -> None:
    """Print {component: {"inputs", "outputs", "arguments"}}, each in the order of the YAML."""
    json.dump(
        {Path(folder).name: _described(found) for folder in folders if (found := _settings(Path(folder)))}, sys.stdout
    )


def _settings(folder: Path) -> type | None:
    for file in (folder / "settings.py", folder / f"{folder.name}.py"):
        if file.is_file():
            found = getattr(module := _loaded(file), "Settings", None)
            return found if getattr(found, "__module__", "").startswith((module.__name__, "shared.settings.")) else None
    return None


def _loaded(file: Path) -> ModuleType:
    name = f"components.{file.parent.name}.{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None  # noqa: S101, PT018  # a .py file
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _described(settings: type) -> dict[str, Any]:
    ports = ports_of(settings)
    ports.sort(key=lambda port: not port.is_input)
    arguments = [
        {
            "flag": port.flag,
            "kind": "inputs" if port.is_input else "outputs",
            "name": _public(port),
            "optional": port.is_optional,
        }
        for port in ports
        if not isinstance(port.declared, Input) or port.declared.is_argument
    ]
    inputs = [_input(port, port.declared) for port in ports if isinstance(port.declared, Input)]
    outputs = [
        {"name": _public(port), "type": port.type, "mode": port.declared.mode, "description": port.declared.description}
        for port in ports
        if not isinstance(port.declared, Input)
    ]
    return {"inputs": inputs, "outputs": outputs, "arguments": arguments}


def _public(port: Port) -> str:
    return (isinstance(port.declared, Output) and port.declared.port) or port.name


def _input(port: Port, declared: Input) -> dict[str, Any]:
    return {
        "name": port.name,
        "type": port.type,
        "optional": port.is_optional,
        "default": str(port.default).lower() if port.is_flag else port.default,
        "min": declared.least if port.type in ("integer", "number") else None,
        "max": declared.most if port.type in ("integer", "number") else None,
        "enum": list(port.choices),
        "description": declared.description,
    }


if __name__ == "__main__":
    main(sys.argv[1:])
