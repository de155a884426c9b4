"""What kind of value a key of Azure ML's YAML takes: nearly every key has one kind, wherever it stands.

The table is compared with the schemas of the installed azure-ai-ml by a test, so that a new SDK shows what changed.
Keys whose values have rules of their own (``inputs``, ``version``, ``timeout``, …) are left to their readers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from allranks.spec.document import yaml_kind
from allranks.spec.suggest import did_you_mean

NO_VALUE = "has no value; Azure ML refuses this."
_LEAVE_OUT = "Leave the key out."


@dataclass(frozen=True)
class ValueKind:
    """One kind of value.

    Attributes:
        name: in words, for a message: ``a text``.
        types: Python's types of it, as YAML is read.
        items: what the values of a mapping have to be; None for anything.
        choices: the texts that are allowed, in any spelling of upper and lower case; empty for all.
    """

    name: str
    types: tuple[type, ...]
    items: ValueKind | None = None
    choices: frozenset[str] = field(default=frozenset())

    def takes(self, value: object) -> bool:
        """Whether a value is of this kind; a boolean is no number."""
        return isinstance(value, self.types) and (not isinstance(value, bool) or bool in self.types)


def _choice(*choices: str) -> ValueKind:
    return ValueKind("a text", (str,), choices=frozenset(choices))


TEXT = ValueKind("a text", (str,))
MAPPING = ValueKind("a mapping of names to values", (dict,))
TEXTS = ValueKind("a mapping of names to values", (dict,), TEXT)
TEXT_OR_LIST = ValueKind("a text or a list", (str, list))
LIST = ValueKind("a list", (list,), TEXT)

_TEXT_KEYS = (
    *("name", "display_name", "description", "experiment_name", "comment", "command", "parent_job_name"),
    *("instance_type", "shm_size", "image", "dockerfile_path", "datastore", "path", "primary_metric"),
    *("args", "program_arguments"),
    *(
        "compute",
        "default_compute",
        "default_datastore",
        "client_id",
        "object_id",
        "msi_resource_id",
        "nodes",
        "ssh_public_keys",
        "log_dir",
    ),
)
VALUE_KINDS: Mapping[str, ValueKind] = MappingProxyType(
    {
        **dict.fromkeys(_TEXT_KEYS, TEXT),
        "tags": TEXTS,
        "properties": MAPPING,
        "locations": LIST,
        "docker_args": TEXT_OR_LIST,
        "os_type": _choice("linux", "windows"),
        "priority": _choice("low", "medium", "high"),
    }
)
_DUMPED_ONLY = frozenset(
    {"$schema", "id", "creation_context", "latest_version", "status", "log_files", "parameters", "endpoint"}
    | {"error_message", "intellectual_property"}
)


@dataclass(frozen=True)
class Misfit:
    """A value of the wrong kind.

    Attributes:
        key: dotted below the mapping.
        is_kept: whether the value can be read all the same, as the text that YAML made of it.
    """

    key: str
    message: str
    hint: str = ""
    is_kept: bool = False


def snake_case(text: str) -> str:
    """Write a choice as the SDK reads it where it takes camel case too: ``truncation_selection``.

    The rule is that of ``camel_to_snake`` in azure-ai-ml.
    """
    words = re.sub("(.)([A-Z][a-z]+)", r"\1_\2", text)
    return re.sub("([a-z0-9])([A-Z])", r"\1_\2", words).lower()


def find_misfits(data: Mapping[str, Any]) -> Iterator[Misfit]:
    """Yield the keys of a mapping whose values Azure ML does not take there."""
    for key, value in data.items():
        kind = VALUE_KINDS.get(key)
        if value is None:
            if key not in _DUMPED_ONLY:
                yield Misfit(key, NO_VALUE, _LEAVE_OUT, is_kept=True)
        elif kind is not None:
            yield from _misfits_of(key, value, kind)


def _misfits_of(key: str, value: Any, kind: ValueKind) -> Iterator[Misfit]:
    if not kind.takes(value):
        is_scalar = not isinstance(value, (dict, list))
        hint = f"Write '{value}' in quotes." if is_scalar and kind is TEXT else ""
        yield Misfit(key, f"is a {yaml_kind(value)}, and should be {kind.name}.", hint, is_scalar and kind is TEXT)
    elif kind.choices and value.lower() not in kind.choices:
        choices = f"values of {key}"
        yield Misfit(key, f"'{value}' is none of the {choices}.", did_you_mean(value.lower(), kind.choices, choices))
    elif kind.items is not None:
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for name, item in pairs:
            if item is not None and not isinstance(item, (dict, list)):
                yield from _misfits_of(f"{key}.{name}", item, kind.items)
