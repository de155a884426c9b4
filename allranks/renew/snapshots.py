"""What of ``shared/`` a component's script needs, and the lines of its ``.amlignore`` that leave out the rest.

A deny-list: a file that is new is taken along until ``allranks renew`` finds that nothing reaches it. Its lines hold
for the SDK, for ``az`` and for the local engine, since all three read the file, and seen from the folder that holds
``shared/`` just as in the snapshot. A later line ``!/shared/...``, by hand, brings back what a script names otherwise.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from allranks.errors import UsageError
from allranks.renew.imports import SourceTree
from allranks.spec import Component

_SHARED = "shared"
_BEGIN = "# Made by `allranks renew`: what of shared/ no import of the script reaches.\n"
_END = "# End of what is made.\n"


def with_unreached(ignore: str, component: Component) -> str:
    """The text of a component's ``.amlignore`` with the block of today's imports; as it was if it has no such block.

    Raises:
        UsageError: a file of the component or of ``shared/`` is not Python.
    """
    before, begin, rest = ignore.partition(_BEGIN)
    if not begin:
        return ignore
    try:
        lines = "".join(f"/{line}\n" for line in unreached(component))
    except SyntaxError as error:
        message = f"{error.filename}, line {error.lineno}: {error.msg}."
        raise UsageError(message, "Nothing can be read from it.") from None
    return before + begin + lines + _END + rest.partition(_END)[2]


def unreached(component: Component) -> list[str]:
    """Folders (with a slash at the end) and files of ``shared/`` that no import of the component's scripts reaches."""
    if not any(include.name == _SHARED for include in component.includes):
        return []
    tree = source_tree(component)
    shared = {place for place in tree.files if place.startswith(f"{_SHARED}/")}
    return sorted(_left_out(_SHARED, shared, reached_files(tree, tree.files.keys() - shared)))


def source_tree(component: Component) -> SourceTree:
    """The Python files of a component and of what it includes, as they would lie on a node if nothing were left out."""
    files: dict[str, Path] = {}
    for folder, above in [(component.code, ""), *((include, include.name) for include in component.includes)]:
        if folder is None:
            continue
        if folder.is_file():
            files |= {folder.name: folder} if folder.suffix == ".py" else {}
            continue
        for file in sorted(folder.rglob("*.py")):
            files[str(PurePosixPath(above, file.relative_to(folder).as_posix()))] = file
    return SourceTree(files)


def reached_files(tree: SourceTree, scripts: set[str]) -> set[str]:
    """The places of all files that may be imported, or copied, once these are started."""
    frameworks = {framework for script in scripts for framework in _frameworks(tree.parsed(script))}
    reached: set[str] = set()
    waiting = set(scripts)
    while waiting:
        place = waiting.pop()
        reached.add(place)
        found = tree.targets(place) | tree.packages_above(place)
        waiting |= (found | _named(tree, place, frameworks)) - reached
    return reached


def _frameworks(script: ast.Module) -> set[str]:
    """What a script gives to ``init``: its text, or every text of the script where it is computed."""
    calls = [node for node in ast.walk(script) if isinstance(node, ast.Call)]
    calls = [call for call in calls if ast.unparse(call.func).rpartition(".")[2] == "init"]
    given = [call.args[0] for call in calls if call.args]
    given += [word.value for call in calls for word in call.keywords if word.arg == "framework"]
    known = {str(argument.value) for argument in given if isinstance(argument, ast.Constant)}
    return known if all(isinstance(argument, ast.Constant) for argument in given) else set(_texts(script))


def _named(tree: SourceTree, place: str, frameworks: set[str]) -> set[str]:
    """What a file names rather than imports.

    That is a module by its dotted name, a file beside it, such as the ``serve.py`` that is written into a saved model,
    and the modules beside it in a table from the frameworks of ``init`` to them.
    """
    folder, texts = PurePosixPath(place).parent, set(_texts(tree.parsed(place)))
    found = {tree.modules[text] for text in texts & tree.modules.keys() if "." in text}
    found |= {str(folder / text) for text in texts if text.endswith(".py") and "/" not in text}
    tables = (node for node in ast.walk(tree.parsed(place)) if isinstance(node, ast.Dict))
    rows = ((key, value) for table in tables for key, value in zip(table.keys, table.values, strict=True))
    for key, value in rows:
        if isinstance(key, ast.Constant) and key.value in frameworks:
            found |= {str(folder / f"{module}.py") for module in _texts(value)}
    return found & tree.files.keys()


def _texts(node: ast.AST) -> Iterator[str]:
    return (one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str))


def _left_out(folder: str, places: set[str], reached: set[str]) -> Iterator[str]:
    """The whole folder when nothing in it is reached, else what is not reached of it."""
    if not any(place in reached for place in places):
        yield f"{folder}/"
        return
    below: dict[str, set[str]] = {}
    for place in places:
        name, slash, _ = place.removeprefix(f"{folder}/").partition("/")
        if slash:
            below.setdefault(f"{folder}/{name}", set()).add(place)
        elif place not in reached:
            yield place
    for inner, inside in below.items():
        yield from _left_out(inner, inside, reached)
