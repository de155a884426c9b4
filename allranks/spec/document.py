"""YAML files to plain data, with the line of everything: what is wrong has a place, and never a traceback."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from allranks.errors import Problem, SpecError
from allranks.spec.budget import current_budget
from allranks.spec.model import Source
from allranks.spec.nesting import is_too_deep

try:
    from yaml import CSafeLoader as _Loader  # ten times as fast
except ImportError:  # a PyYAML that was built without libyaml
    from yaml import SafeLoader as _Loader  # type: ignore[assignment]

_TAG = "tag:yaml.org,2002:"
_MERGE = _TAG + "merge"
# Kept as written: a date or a key's value is text for Azure ML, and "=" is no literal.
_TEXTS = frozenset({_TAG + "str", _TAG + "timestamp", _TAG + "value"})


def read_yaml(path: Path | str) -> tuple[dict[str, Any], Source]:
    """Read a YAML file whose top is a mapping.

    Returns:
        The data, its keys as text, and where it was read from; ``Source.problems`` holds what can be read but is
        wrong, such as a key that is there twice (the last one counts).

    Raises:
        SpecError: the file cannot be read, is not YAML, or is not a mapping.
    """
    path, budget = Path(path).absolute(), current_budget()
    try:
        if path.is_file() and path.stat().st_size > budget.yaml_bytes:
            message = f"has {path.stat().st_size:,} bytes; at most {budget.yaml_bytes:,} are read as YAML."
            raise SpecError([Problem(message, file=path, hint=budget.how_to_raise("yaml_bytes"))])
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SpecError([Problem(f"is not UTF-8 text: byte {error.start} is {error.reason}.", file=path)]) from None
    except OSError as error:
        raise SpecError([Problem(f"cannot be read: {error.strerror or error}.", file=path)]) from None
    return parse_yaml(text, path)


def parse_yaml(text: str, path: Path) -> tuple[dict[str, Any], Source]:
    """Read YAML text that stands, or would stand, in the file ``path``; as ``read_yaml``."""
    try:
        if is_too_deep(text, _Loader, current_budget().depth):
            raise SpecError([Problem(_too_deep(), file=path, hint=current_budget().how_to_raise("depth"))])
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            walk = _Walk(loader, path)
            data = {} if node is None else walk.value(node, "")
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        raise SpecError([_syntax_problem(error, path)]) from None
    except yaml.YAMLError as error:
        reason = str(error).splitlines()[0]
        raise SpecError([Problem(f"is not YAML: {reason}.", file=path)]) from None
    except RecursionError:  # composed without libyaml
        raise SpecError([Problem(_too_deep(), file=path)]) from None
    if node is None:
        raise SpecError([Problem("is empty.", file=path)])
    if not isinstance(data, dict):
        message = f"is a {yaml_kind(data)} at the top; a component or pipeline is a mapping of keys to values."
        raise SpecError([Problem(message, file=path, line=node.start_mark.line + 1)])
    lines, texts = MappingProxyType(walk.lines), MappingProxyType(walk.texts)
    return data, Source(path, path.parent, lines, texts=texts, problems=tuple(walk.problems))


def yaml_kind(value: object) -> str:
    """Name the kind of a YAML value for a message."""
    names = {dict: "mapping", list: "list", str: "text", bool: "boolean", int: "number", float: "number"}
    return "nothing" if value is None else names.get(type(value), type(value).__name__)


def _too_deep() -> str:
    most = current_budget().depth
    return f"is nested too deeply to be read: more than {most} mappings and lists inside each other."


def _syntax_problem(error: yaml.MarkedYAMLError, path: Path) -> Problem:
    mark = error.problem_mark or error.context_mark
    reason = " ".join(filter(None, (error.problem, error.context))).replace("\\t", "tab")
    tab = "cannot start any token" in reason or "tab" in reason
    hint = "Indent with spaces, and quote a text that starts with a special character." if tab else ""
    return Problem(f"is not YAML: {reason}.", file=path, line=mark.line + 1 if mark else None, hint=hint)


class _Walk:
    """Builds the data of a YAML tree and notes the line of each path on the way."""

    def __init__(self, loader: Any, path: Path) -> None:
        self.lines: dict[str, int] = {}
        self.texts: dict[str, str] = {}
        self.problems: list[Problem] = []
        self._loader = loader
        self._path = path
        self._budget = current_budget()
        self._done: dict[int, Any] = {}  # by node: an anchor's value is built once, however often it is used
        self._open: set[int] = set()

    def value(self, node: Node, where: str) -> Any:
        """Return the data of ``node``, which stands at the dotted path ``where``."""
        self.lines.setdefault(where, node.start_mark.line + 1)
        if isinstance(node, ScalarNode):
            return self._scalar(node, where)
        if id(node) in self._open:
            self._wrong(node, where, "an anchor contains itself.")
            return None
        if len(self._open) == self._budget.depth:
            self._wrong(node, where, f"{_too_deep()} {self._budget.how_to_raise('depth')}")
            return None
        if id(node) not in self._done:
            self._open.add(id(node))
            if isinstance(node, MappingNode):
                self._done[id(node)] = self._mapping(node, where)
            elif isinstance(node, SequenceNode):
                self._done[id(node)] = [self.value(item, f"{where}.{i}") for i, item in enumerate(node.value)]
            self._open.discard(id(node))
        return self._done[id(node)]

    def _scalar(self, node: ScalarNode, where: str) -> Any:
        if "\0" in node.value:
            self._wrong(node, where, "holds a NUL character, which no path and no command can have.")
            return node.value.replace("\0", "")
        if node.tag == _TAG + "timestamp" and where != "version" and ".environment_variables." not in f".{where}":
            message = f"YAML reads {node.value} as a date, and azure-ai-ml cannot send one."
            self._wrong(node, where, f"{message} Write '{node.value}' in quotes.")
        if node.tag in _TEXTS:
            return node.value
        try:
            value = self._loader.construct_object(node)
        except (yaml.constructor.ConstructorError, ValueError):
            if node.tag == _TAG + "int" and len(node.value) > self._budget.digits:
                return self._too_long(node, where)
            self._wrong(node, where, f"'{node.tag.removeprefix(_TAG)}' is no type that Azure ML's YAML has.")
            return node.value
        if isinstance(value, int) and abs(value) >= 10**self._budget.digits:
            return self._too_long(node, where)
        if value is not None and str(value) != node.value:
            self.texts[where] = node.value
        return value

    def _too_long(self, node: ScalarNode, where: str) -> int:
        most = f"is an integer of more than {self._budget.digits} digits."
        self._wrong(node, where, f"{most} {self._budget.how_to_raise('digits')}")
        return 0

    def _mapping(self, node: MappingNode, where: str) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        own: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if key_node.tag == _MERGE:
                merged = self._merge(value_node, where) | merged
                continue
            if not isinstance(key_node, ScalarNode):
                self._wrong(key_node, where, "a key must be a text, not a list or mapping.")
                continue
            key = key_node.value
            path = f"{where}.{key}" if where else key
            if key in own:
                first = self.lines[path]
                message = f"'{key}' is there twice, first in line {first}; only one can count."
                self._wrong(key_node, path, message, "warning")  # the SDK's loader takes the last one, as we do
            self.lines[path] = key_node.start_mark.line + 1
            own[key] = self.value(value_node, path)
        return merged | own

    def _merge(self, node: Node, where: str) -> dict[str, Any]:
        sources = node.value if isinstance(node, SequenceNode) else [node]
        merged: dict[str, Any] = {}
        for source in sources:
            if not isinstance(source, MappingNode):
                self._wrong(source, where, "'<<' takes an anchor of a mapping.")
                continue
            merged = self.value(source, f"{where}.<<") | merged
        return merged

    def _wrong(self, node: Node, where: str, message: str, severity: str = "error") -> None:
        line = node.start_mark.line + 1
        self.problems.append(Problem(message, where, self._path, line, severity=severity))
