"""One mapping of a document, read key by key; what is wrong is noted with its place and reading goes on."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from allranks.errors import Problem
from allranks.spec.budget import current_budget
from allranks.spec.document import yaml_kind
from allranks.spec.expressions import find_references
from allranks.spec.model import Source
from allranks.spec.suggest import did_you_mean, nearest_name
from allranks.spec.value_kinds import find_misfits

_ADDRESS = re.compile(r"azureml:|/subscriptions/|(?!file:)[A-Za-z][\w+.-]+://")


@dataclass(slots=True)
class Section:
    """A mapping at the dotted path ``where`` of ``source``.

    Attributes:
        problems: the list of the whole document, shared by all of its sections.
    """

    data: dict[str, Any]
    where: str
    source: Source
    problems: list[Problem] = field(repr=False)

    def __contains__(self, key: str) -> bool:
        """Whether the key is there with a value."""
        return self.data.get(key) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self.data)

    def path(self, key: str) -> str:
        """Return the dotted path of a key."""
        return ".".join(part for part in (self.where, key) if part)

    def wrong(self, key: str, message: str, hint: str = "", severity: str = "error") -> None:
        """Note a problem with the value of ``key`` (empty: with this mapping as a whole)."""
        self.problems.append(self.source.problem(self.path(key) if key else self.where, message, hint, severity))

    def is_respelt(self, key: str) -> bool:
        """Whether YAML made something else of what is written at ``key``, of which the check warns."""
        return self.source.place(self.path(key)) in self.source.texts

    def known(
        self,
        keys: Iterable[str],
        what: str,
        dropped: Mapping[str, str] | None = None,
        *,
        is_open: bool = False,
        needed: Iterable[str] = (),
        unchecked: Iterable[str] = (),
    ) -> None:
        """Note each key that is none of ``keys``, and each value of a wrong kind (``value_kinds``).

        A key that is misspelt is read as what was meant, but for those that Azure ML ignores.

        Args:
            keys: the keys that Azure ML knows here.
            what: how a message calls this mapping, such as ``a step``.
            dropped: keys that Azure ML accepts and ignores, with the reason; they are warnings and are removed.
            is_open: whether Azure ML takes any other key too and ignores it: then that is a warning.
            unchecked: keys whose values Azure ML takes as they come.
            needed: keys whose misspelling is an error even so, since Azure ML refuses a mapping without them.
        """
        keys, needed = frozenset(keys), frozenset(needed)
        self._note_misfits(keys.difference(unchecked))
        for key in list(self.data):
            if key in keys:
                continue
            if dropped and key in dropped:
                self.wrong(key, f"'{key}' is ignored here by Azure ML: {dropped[key]}", severity="warning")
                del self.data[key]
                continue
            value, near = self.data.pop(key), nearest_name(key, keys)
            is_ignored = is_open and (near not in needed or near in self.data)
            severity = "warning" if is_ignored else "error"
            self.wrong(key, f"'{key}' is not a key of {what}.", did_you_mean(key, keys, f"keys of {what}"), severity)
            if near is not None and near not in self.data and not is_ignored:
                self.data[near] = value

    def _note_misfits(self, keys: frozenset[str]) -> None:
        if self.source.file is None:  # made of Python's objects, which hold what the SDK has let pass
            return
        for misfit in find_misfits({key: value for key, value in self.data.items() if key in keys}):
            self.wrong(misfit.key, misfit.message, misfit.hint)
            if not misfit.is_kept and misfit.key in self.data:
                del self.data[misfit.key]

    def text(self, key: str, default: str = "") -> str:
        """Return a text; a number or boolean becomes the text that YAML made of it."""
        value = self.data.get(key)
        if value is None:
            return default
        if isinstance(value, (dict, list)):
            self.wrong(key, f"is a {yaml_kind(value)}, and should be a text.")
            return default
        return str(value)

    def flag(self, key: str) -> bool | None:
        """Return a boolean, or None when the key is absent; the texts true and false count."""
        value = self.data.get(key)
        if isinstance(value, str) and value.lower() in ("true", "false"):
            return value.lower() == "true"
        if value is None or isinstance(value, bool):
            return value
        self.wrong(key, f"{shown_value(value)} is neither true nor false.")
        return None

    def whole(self, key: str) -> int | str | None:
        """Return a whole number, or the text of a binding such as ``${{parent.inputs.nodes}}``."""
        value = self.data.get(key)
        if value is None or (isinstance(value, int) and not isinstance(value, bool)):
            return value
        if isinstance(value, str):
            if find_references(value):
                return value
            if re.fullmatch(rf"[+-]?\d{{1,{current_budget().digits}}}", value.strip(), re.ASCII):
                return int(value)
        self.wrong(key, f"{shown_value(value)} is not a whole number.")
        return None

    def number(self, key: str) -> float | None:
        """Return a finite number; a text that is one counts, as it does for Azure ML."""
        value = self.data.get(key)
        if value is None or (isinstance(value, int) and not isinstance(value, bool)):
            return value
        try:
            number = float(value) if isinstance(value, (float, str)) else math.nan
        except ValueError:
            number = math.nan
        if math.isfinite(number):
            return number
        if isinstance(value, str) and find_references(value):
            self.wrong(key, f"{shown_value(value)} is a binding; Azure ML takes none here.", "Write the value.")
            return None
        self.wrong(key, f"{shown_value(value)} is not a {'finite ' if isinstance(value, float) else ''}number.")
        return None

    def mapping(self, key: str) -> Section:
        """Return the mapping below ``key``, empty when the key is absent; keys of the copy may be removed."""
        value = self.data.get(key)
        if value is not None and not isinstance(value, dict):
            self.wrong(key, f"is a {yaml_kind(value)}, and should be a mapping of names to values.")
            value = None
        return Section(dict(value or {}), self.path(key), self.source, self.problems)

    def items(self, key: str) -> list[Any]:
        """Return the list below ``key``, empty when the key is absent."""
        value = self.data.get(key)
        if value is not None and not isinstance(value, list):
            self.wrong(key, f"is a {yaml_kind(value)}, and should be a list.", hint="Start each item with '- '.")
            value = None
        return value or []

    def texts(self, key: str) -> dict[str, str]:
        """Return a mapping of texts, such as tags or environment variables."""
        section = self.mapping(key)
        return {name: section.text(name) for name in section}

    def choice(
        self, key: str, choices: Iterable[str], plural: str, fold: Callable[[str], str] | None = None
    ) -> str | None:
        """Return a text that must be one of ``choices``, or None; ``fold`` says how it is compared."""
        choices = frozenset(choices)
        value = self.data.get(key)
        value = fold(value) if fold and isinstance(value, str) else value
        if value is None or (isinstance(value, str) and value in choices):
            return value
        self.wrong(key, f"{shown_value(value)} is none of the {plural}.", did_you_mean(str(value), choices, plural))
        return nearest_name(str(value), choices)

    def local(self, text: str) -> str:
        """Make a local path absolute, from the document's folder; addresses and bindings stay as they are."""
        return local_path(text, self.source.base)


def local_path(text: str, base: Path) -> str:
    """Make a local path absolute; an address (``azureml:``, ``https:``) and a text with ``${{ }}`` stay as they are."""
    path = text.removeprefix("file:")
    if path.startswith("///"):
        path = path[2:]
    if "${{" in path or is_address(path):
        return path
    return os.path.normpath(base / path)


def is_address(text: str) -> bool:
    """Whether a path is an address such as ``azureml:data:1`` or ``https://…`` rather than a local path."""
    return _ADDRESS.match(text) is not None


def shown_value(value: object) -> str:
    """Write a value for a message: texts in quotes, everything else as YAML writes it, long ones shortened."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (dict, list)):
        return f"a {yaml_kind(value)}"
    text = "nothing" if value is None else str(value)
    text = text if len(text) <= 80 else text[:77] + "..."
    return f"'{text}'" if isinstance(value, str) else text


def a_or_an(type_: str) -> str:
    """Put the article before the name of a type: an integer, a uri_folder, an mltable."""
    return f"an {type_}" if type_.startswith(("i", "ml", "mp", "e")) else f"a {type_}"
