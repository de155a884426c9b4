"""``inputs:``, ``outputs:`` and the arguments of the command in a ``component.yaml``, written from its settings.

The settings are classes of ``shared/settings/``, which this tool does not import: ``python -m shared.settings`` prints
them as JSON. Everything else in the file is left as it was written by hand, and so is what stands in the command up to
the name of the script; a component without settings stays as it is.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import yaml

from allranks.errors import UsageError

ComponentInterface = Mapping[str, Sequence[Mapping[str, Any]]]
"""``inputs``, ``outputs`` and ``arguments`` of one component, in the order of the YAML."""

_WIDTH = 120
_KEYS = ("type", "mode", "optional", "default", "enum", "min", "max", "description")
_ARGUMENT = re.compile(r"(\$\[\[)?--[\w-]+ '\$\{\{(inputs|outputs)\.\w+\}\}'(\]\])?")


def read_interfaces(root: Path, folders: Sequence[Path]) -> Mapping[str, ComponentInterface]:
    """What the settings in ``root/shared`` say, by component; a component without settings is not among them.

    A tree without ``shared/settings`` has none. Raises UsageError, with what Python said, if they cannot be read.
    """
    if not folders or not (root / "shared" / "settings" / "__main__.py").is_file():
        return {}
    command = [sys.executable, "-m", "shared.settings", *(str(folder.resolve()) for folder in folders)]
    done = subprocess.run(command, cwd=root, capture_output=True, encoding="utf-8", check=False)
    if done.returncode:
        said = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        hint = f"Try in {root}: python -m shared.settings"
        if said.startswith("ModuleNotFoundError"):
            hint = "Renew where the script can be imported: what stands at its top has to be installed."
        raise UsageError(f"the settings in {root} cannot be read: {said}", hint)
    found: dict[str, ComponentInterface] = json.loads(done.stdout)
    return found


def with_interface(text: str, interface: ComponentInterface) -> str:
    """A ``component.yaml`` with these inputs, outputs and arguments; raises ValueError if it has no place for them."""
    for key in ("inputs", "outputs"):
        ports = [line for port in interface[key] for line in _port_lines(port)]
        text = _with_block(text, key, f"{key}:", ports)
    command = _block(text, "command").splitlines()
    if not command[0].rstrip().endswith((">", ">-")):
        raise ValueError("the command is not folded: 'command: >-', with the script's name on a line of its own")
    head = [number for number, line in enumerate(command) if not line.strip().startswith(("-", "$[["))][-1] + 1
    own = [line for line in command[head:] if not _ARGUMENT.fullmatch(line.strip())]
    arguments = [f"  {_argument(**one)}" for one in interface["arguments"]]
    return _with_block(text, "command", command[0], [*command[1:head], *arguments, *own])


def _with_block(text: str, key: str, first: str, lines: Iterable[str]) -> str:
    return text.replace(_block(text, key), "".join(f"{line}\n" for line in (first, *lines)), 1)


def _block(text: str, key: str) -> str:
    """A top-level key with all that is indented below it; without the empty lines and comments that follow."""
    found = re.search(rf"^{key}:.*\n(?:(?:\n|#.*\n)*[ -].*\n)*", text, re.MULTILINE)
    if found is None:
        raise ValueError(f"there is no {key!r}")
    return found[0]


def _argument(flag: str, kind: str, name: str, *, optional: bool) -> str:
    argument = f"{flag} '${{{{{kind}.{name}}}}}'"
    return f"$[[{argument}]]" if optional else argument


def _port_lines(port: Mapping[str, Any]) -> list[str]:
    """One input or output; what is empty is left out."""
    lines = [f"  {port['name']}:"]
    for key in _KEYS:
        value = port.get(key)
        if value or (value is not None and key in ("default", "min", "max")):
            lines += _key_lines(key, value)
    return lines


def _key_lines(key: str, value: object) -> list[str]:
    line = f"    {key}: {_scalar(value)}"
    if key != "description" or len(line) <= _WIDTH:
        return [line]
    folded = textwrap.wrap(str(value), _WIDTH - 6, break_long_words=False, break_on_hyphens=False)
    return [f"    {key}: >-", *(f"      {part}" for part in folded)]


def _scalar(value: object) -> str:
    """A value as YAML on one line: plain where YAML reads the same text again, otherwise in double quotes."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return format(Decimal(repr(value)), "f")  # YAML takes 1e-08 for a text
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_scalar, value))}]"
    text = str(value)
    plain = not re.search(r"[,\[\]{}]", text) or " " in text
    try:
        return text if plain and yaml.safe_load(f"key: {text}") == {"key": text} else json.dumps(text)
    except yaml.YAMLError:
        return json.dumps(text)
