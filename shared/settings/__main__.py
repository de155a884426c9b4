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

from shared.settings.fields import Port, ports_of


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
    ports = sorted(ports_of(settings), key=lambda port: not port.is_input)
    return {
        "inputs": [_input(port) for port in ports if port.is_input],
        "outputs": [
            {"name": port.yaml_name, "type": port.type, "mode": port.mode, "description": port.description}
            for port in ports
            if not port.is_input
        ],
        "arguments": [
            {
                "flag": port.flag,
                "kind": "inputs" if port.is_input else "outputs",
                "name": port.yaml_name,
                "optional": port.is_optional,
            }
            for port in ports
            if port.is_argument
        ],
    }


def _input(port: Port) -> dict[str, Any]:
    return {
        "name": port.name,
        "type": port.type,
        "optional": port.is_optional,
        "default": port.default_given,
        "min": port.least,
        "max": port.most,
        "enum": list(port.choices),
        "description": port.description,
    }


if __name__ == "__main__":
    main(sys.argv[1:])
