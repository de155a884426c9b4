"""Arguments made of whole functions and classes: by jsonargparse's ``CLI`` and by Fire."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from allranks.script.arguments import PAIR, help_text
from allranks.script.sources import ScriptSource, dotted_name, function_parameters
from allranks.script.typed_arguments import AS_LIST, TypedArguments, TypedParameter, TypedStyle

_JSONARGPARSE = TypedStyle(several=AS_LIST)
_FIRE = TypedStyle(truth=PAIR, on="--{}=True", off="--{}=False", several=AS_LIST, by_default=True)


def read_jsonargparse(source: ScriptSource, typed: TypedArguments) -> None:
    """Add the parameters of ``CLI(main)``, or of one function of ``CLI([train, test])``; the required are positional.

    Raises:
        UsageError: it is given several functions, and which one is meant is not said.
    """
    for call in (node for node in ast.walk(source.tree) if isinstance(node, ast.Call)):
        if dotted_name(call.func).rpartition(".")[2] not in ("CLI", "auto_cli"):
            continue
        functions = _given_functions(call, source, typed)
        level = 0
        if len(functions) > 1:
            chosen = typed.found.choose([(name,) for name in functions], source.path.name)
            functions, level = {chosen[0]: functions[chosen[0]]}, 1
        if not functions:
            typed.say(source, call, "what CLI is given is no function of this folder; its arguments are not read.")
        for function, place in functions.values():
            _describe(function, typed)
            for name, annotation, default, node in function_parameters(function):
                flag = "" if default is None else f"--{name}"
                typed.add(TypedParameter(flag, name, annotation, default, place, node, level=level), _JSONARGPARSE)


def read_fire(source: ScriptSource, typed: TypedArguments) -> None:
    """Add the parameters of what ``fire.Fire`` is given: a function, or one of several, or a class with its methods.

    Raises:
        UsageError: it is given several functions or methods, and which one is meant is not said.
    """
    for call in (node for node in ast.walk(source.tree) if isinstance(node, ast.Call)):
        if dotted_name(call.func) not in ("fire.Fire", "Fire"):
            continue
        given = call.args[0] if call.args else next((k.value for k in call.keywords if k.arg == "component"), None)
        name = dotted_name(given) if given is not None else ""
        if name in typed.classes:
            _add_class(name, source, typed)
            continue
        functions = _given_functions(call, source, typed)
        if not functions:
            typed.say(source, call, "what Fire is given is not in this folder; its arguments are not read.")
            continue
        is_one = name in typed.functions
        chosen = () if is_one else typed.found.choose([(one,) for one in functions], source.path.name)
        function, place = functions[chosen[0] if chosen else name]
        _describe(function, typed)
        typed.add_function(function, place, _FIRE, level=len(chosen))


def _add_class(name: str, source: ScriptSource, typed: TypedArguments) -> None:
    node, place = typed.classes[name]
    methods = {one.name: one for one in node.body if isinstance(one, ast.FunctionDef)}
    public = [one for one in methods if not one.startswith("_")]
    chosen = typed.found.choose([(one,) for one in public], source.path.name)
    if "__init__" in methods:
        typed.add_function(methods["__init__"], place, _FIRE)
    _describe(methods[chosen[0]], typed)
    typed.add_function(methods[chosen[0]], place, _FIRE, level=1)


def _given_functions(
    call: ast.Call, source: ScriptSource, typed: TypedArguments
) -> Mapping[str, tuple[ast.FunctionDef, ScriptSource]]:
    """The functions that a call is given, by the words that start them; without any those of the script."""
    given = call.args[0] if call.args else None
    if given is None:
        return {name: one for name, one in typed.functions.items() if one[1] is source and not name.startswith("_")}
    if isinstance(given, ast.Dict):
        pairs = zip(given.keys, given.values, strict=True)
        named = {str(getattr(key, "value", "")): dotted_name(value) for key, value in pairs}
    else:
        listed = given.elts if isinstance(given, ast.List | ast.Tuple) else [given]
        named = {dotted_name(one): dotted_name(one) for one in listed}
    return {word: typed.functions[name] for word, name in named.items() if name in typed.functions}


def _describe(function: ast.FunctionDef, typed: TypedArguments) -> None:
    words = help_text((ast.get_docstring(function) or "").partition("\n\n")[0])
    typed.found.description = typed.found.description or words
