"""Whose arguments an ``add_argument`` of argparse declares: the script's own, or those of a subcommand's parser."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from allranks.script.sources import ScriptSource, dotted_name
from allranks.script.subcommands import Subcommand, leaf_subcommands

_SAME_PARSER = frozenset(["add_subparsers", "add_argument_group", "add_mutually_exclusive_group"])
_DEEPEST = 8  # calls within calls, so that functions that call each other come to an end

_Scope = dict[str, set[Subcommand]]
"""By the name of a parser, of a group of it or of its subparsers: the subcommands that it is the parser of."""


class ParserOwners:
    """Follows the parsers of a script, its first source, from where they are made to where they get their arguments.

    Attributes:
        subcommands: those that have no further ones below them, in their order.
        unread: the lines at which a subcommand's name is only known when the script runs.
    """

    def __init__(self, sources: Sequence[ScriptSource]) -> None:
        nodes = [node for source in sources for node in ast.walk(source.tree)]
        self._functions = {node.name: node for node in nodes if isinstance(node, ast.FunctionDef)}
        self._owners: dict[ast.Call, set[Subcommand]] = {}
        self._users: dict[Subcommand, set[Subcommand]] = {}
        self._parsing: set[Subcommand] = set()
        self._known: list[Subcommand] = []
        self._visited: set[ast.FunctionDef] = set()
        self._module: _Scope = {}
        self._returned: dict[tuple[object, ...], set[Subcommand]] = {}
        self.unread: list[ast.Call] = []
        if not any(isinstance(node, ast.Attribute) and node.attr == "add_parser" for node in nodes):
            return
        for source in reversed(sources):
            self._visit(source.tree, self._module, 0)
        for function in [one for one in ast.walk(sources[0].tree) if isinstance(one, ast.FunctionDef)]:
            if function not in self._visited:
                self._visit(function, dict(self._module), 0)

    @property
    def subcommands(self) -> list[Subcommand]:
        """All that the script has."""
        return leaf_subcommands(one for path in self._known for one in self._expanded(path))

    def level(self, call: ast.Call, chosen: Subcommand) -> int | None:
        """After how many words of a subcommand an argument stands; None for one of another subcommand."""
        owners = {one for path in self._owners.get(call, {()}) for one in self._expanded(path)}
        return max((len(one) for one in owners if chosen[: len(one)] == one), default=None)

    def _expanded(self, path: Subcommand, depth: int = 0) -> set[Subcommand]:
        """A path that begins with a parser, ``@…``: the script's own, or those that have it among their ``parents``."""
        if not path or not path[0].startswith("@") or depth > _DEEPEST:
            return {path}
        users = self._users.get(path[:1], set())
        above = {one for user in users for one in self._expanded(user, depth + 1)}
        if not users or path[:1] in self._parsing:
            above |= {()}
        return {(*one, *path[1:]) for one in above}

    def _visit(self, tree: ast.AST, scope: _Scope, depth: int) -> set[Subcommand]:
        """Follow the statements of a function or module; returns what it returns."""
        returned: set[Subcommand] = set()
        if isinstance(tree, ast.FunctionDef):
            self._visited.add(tree)
        for node in _in_scope(tree):
            if isinstance(node, ast.Assign):
                paths = self._paths(node.value, scope, depth)
                scope |= {dotted_name(target): paths for target in node.targets if paths}
            elif isinstance(node, ast.For) and isinstance(node.iter, ast.Tuple | ast.List):
                scope[dotted_name(node.target)] = set().union(*(self._paths(n, scope, depth) for n in node.iter.elts))
            elif isinstance(node, ast.Return) and node.value is not None:
                returned |= self._paths(node.value, scope, depth)
            elif isinstance(node, ast.Call):
                self._paths(node, scope, depth)
        return returned

    def _paths(self, node: ast.expr, scope: _Scope, depth: int) -> set[Subcommand]:
        """The subcommands whose parser an expression is; empty for what is no parser."""
        if not isinstance(node, ast.Call):
            return scope.get(dotted_name(node), set())
        name = dotted_name(node.func)
        if name.endswith("ArgumentParser"):
            made = (f"@{id(node)}",)
            self._note_parents(node, {made}, scope, depth)
            return {made}
        if isinstance(node.func, ast.Attribute):
            attribute, above = node.func.attr, self._paths(node.func.value, scope, depth)
            if attribute in ("add_subparsers", "parse_args", "parse_known_args"):
                self._parsing |= above
            if attribute == "add_argument" and above:
                self._owners.setdefault(node, set()).update(above)
                return set()
            if attribute in _SAME_PARSER:
                return above
            if attribute == "add_parser":
                return self._added(node, above, scope, depth)
        return self._called(node, name.rpartition(".")[2], scope, depth)

    def _added(self, node: ast.Call, above: set[Subcommand], scope: _Scope, depth: int) -> set[Subcommand]:
        first = node.args[0] if node.args else next((one.value for one in node.keywords if one.arg == "name"), None)
        if not isinstance(first, ast.Constant) or not isinstance(first.value, str):
            self.unread += [] if node in self.unread else [node]
            return {("@unknown", "?")}
        made = {(*one, first.value) for one in above or {()}}
        self._known += sorted(made)
        self._note_parents(node, made, scope, depth)
        return made

    def _note_parents(self, node: ast.Call, made: set[Subcommand], scope: _Scope, depth: int) -> None:
        for keyword in node.keywords:
            if keyword.arg == "parents" and isinstance(keyword.value, ast.List | ast.Tuple):
                for one in keyword.value.elts:
                    for parent in self._paths(one, scope, depth):
                        self._users.setdefault(parent, set()).update(made)

    def _called(self, node: ast.Call, name: str, scope: _Scope, depth: int) -> set[Subcommand]:
        """Follow a function of the script's own with the parsers that it is given."""
        function = self._functions.get(name)
        if function is None or depth >= _DEEPEST:
            return set()
        names = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
        names = names[1:] if names[:1] in (["self"], ["cls"]) else names
        given = dict(zip(names, node.args, strict=False)) | {one.arg: one.value for one in node.keywords if one.arg}
        parsers = {key: paths for key, value in given.items() if (paths := self._paths(value, scope, depth))}
        call = (function, len(self._module), *((key, frozenset(paths)) for key, paths in parsers.items()))
        if call not in self._returned:  # once each: functions that call one another would be followed for ever
            self._returned[call] = set()
            self._returned[call] = self._visit(function, self._module | parsers, depth + 1)
        return self._returned[call]


def _in_scope(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function or module in the order of its text, without the functions and classes within."""
    for node in ast.iter_child_nodes(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            yield node
            yield from _in_scope(node)
