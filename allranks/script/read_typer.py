"""Commands of typer: the parameters of their functions."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from allranks.script.arguments import PAIR, help_text
from allranks.script.sources import ScriptSource, dotted_name, function_parameters
from allranks.script.subcommands import Subcommand
from allranks.script.typed_arguments import REPEATED, TypedArguments, TypedParameter, TypedStyle

_STYLE = TypedStyle(truth=PAIR, several=REPEATED)


def read_typer(source: ScriptSource, typed: TypedArguments) -> None:
    """Add the parameters of ``typer.run(main)``, of an app's only command, or of the one that was asked for.

    Raises:
        UsageError: it has several commands, and which one is meant is not said.
    """
    run = next(_run_functions(source, typed), None)
    if run is not None:
        _add_command(run, 0, source, typed)
        return
    places = _app_places(source, typed)
    commands: dict[Subcommand, ast.FunctionDef] = {}
    callbacks: dict[Subcommand, ast.FunctionDef] = {}
    for function in (node for node in source.tree.body if isinstance(node, ast.FunctionDef)):
        for decorator in function.decorator_list:
            call = decorator.func if isinstance(decorator, ast.Call) else decorator
            owner, _, kind = dotted_name(call).rpartition(".")
            if owner in places and kind == "command":
                commands[*places[owner], _command_name(function, decorator, typed)] = function
            elif owner in places and kind == "callback":
                callbacks[places[owner]] = function
    if not commands:
        return
    if len(commands) == 1 and not callbacks and len(places) == 1:  # typer then has no word for it
        _add_command(next(iter(commands.values())), 0, source, typed)
        return
    chosen = typed.found.choose(commands, source.path.name)
    for path, function in callbacks.items():
        if chosen[: len(path)] == path:
            _add_parameters(function, len(path), source, typed)
    _add_command(commands[chosen], len(chosen), source, typed)


def _run_functions(source: ScriptSource, typed: TypedArguments) -> Iterator[ast.FunctionDef]:
    for call in (node for node in ast.walk(source.tree) if isinstance(node, ast.Call)):
        given = dotted_name(call.args[0]) if call.args and dotted_name(call.func) in ("typer.run", "run") else ""
        if given in typed.functions:
            yield typed.functions[given][0]


def _app_places(source: ScriptSource, typed: TypedArguments) -> dict[str, Subcommand]:
    """The words before the commands of each app: none of the first, the name it was added by of another."""
    apps: list[str] = []
    added: dict[str, tuple[str, str]] = {}
    for node in ast.walk(source.tree):
        made = dotted_name(node.value.func) if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) else ""
        if isinstance(node, ast.Assign) and made.rpartition(".")[2] == "Typer":
            apps += map(dotted_name, node.targets)
        if isinstance(node, ast.Call) and node.args and dotted_name(node.func).endswith(".add_typer"):
            given = {one.arg: typed.constant(one.value) for one in node.keywords}
            owner = dotted_name(node.func).rpartition(".")[0]
            added[dotted_name(node.args[0])] = (owner, str(given.get("name", "")))
    places: dict[str, Subcommand] = {}
    for app in apps:
        path: list[str] = []
        above = app
        while above in added and len(path) < len(apps):
            above, name = added[above]
            path[:0] = [name] if name else []
        places[app] = tuple(path)
    return places


def _command_name(function: ast.FunctionDef, decorator: ast.expr, typed: TypedArguments) -> str:
    if isinstance(decorator, ast.Call):
        given = {one.arg: one.value for one in decorator.keywords}
        named = decorator.args[0] if decorator.args else given.get("name")
        if named is not None and isinstance(name := typed.constant(named), str):
            return name
    return function.name.lower().replace("_", "-")


def _add_command(function: ast.FunctionDef, level: int, source: ScriptSource, typed: TypedArguments) -> None:
    words = help_text((ast.get_docstring(function) or "").partition("\n\n")[0])
    typed.found.description = typed.found.description or words
    _add_parameters(function, level, source, typed)


def _add_parameters(function: ast.FunctionDef, level: int, source: ScriptSource, typed: TypedArguments) -> None:
    for name, annotation, default, node in function_parameters(function):
        if dotted_name(annotation or ast.Constant(None)).rpartition(".")[2] != "Context":
            _add_parameter(TypedParameter("", name, annotation, default, source, node, level=level), typed)


def _add_parameter(written: TypedParameter, typed: TypedArguments) -> None:
    annotation, default, name = written.annotation, written.default, written.name
    option: ast.Call | None = None
    words: list[ast.expr] = []
    if isinstance(annotation, ast.Subscript) and dotted_name(annotation.value).endswith("Annotated"):
        parts = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else [annotation.slice]
        annotation = parts[0]
        option = next((one for one in parts[1:] if isinstance(one, ast.Call)), None)
        words = list(option.args) if option else []
    elif isinstance(default, ast.Call) and dotted_name(default.func).rpartition(".")[2] in ("Option", "Argument"):
        option = default
        named = next((one.value for one in option.keywords if one.arg == "default"), None)
        default = option.args[0] if option.args else named
        words = list(option.args[1:])
    default = None if isinstance(default, ast.Constant) and default.value is Ellipsis else default
    is_positional = dotted_name(option.func).endswith("Argument") if option else default is None
    flags = [str(typed.constant(one)) for one in words]
    long = next((one for one in flags if one.startswith("--")), f"--{name.replace('_', '-')}")
    flag, _, off = (part.strip() for part in long.partition("/"))
    keywords = {one.arg: typed.constant(one.value) for one in option.keywords if one.arg} if option else {}
    one = TypedParameter(
        "" if is_positional else flag,
        name,
        annotation,
        default,
        written.source,
        written.node,
        text=help_text(keywords.get("help")),
        off=off or f"--no-{flag.lstrip('-')}",
        bounds=(keywords.get("min"), keywords.get("max")),
        level=written.level,
    )
    typed.add(one, _STYLE)
