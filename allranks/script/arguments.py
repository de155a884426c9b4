"""What a script takes on its command line, as far as reading it tells."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from keyword import iskeyword
from pathlib import PurePath
from typing import Any, TypeAlias

from allranks.script.sources import ScriptSource, dotted_name
from allranks.script.subcommands import Subcommand

Constant: TypeAlias = str | int | float | bool

VALUE, SWITCH, PAIR, SEVERAL, TRUTH = "value", "switch", "pair", "several", "truth"
"""How an argument is given: ``--n 1``; ``--amp``; ``--amp`` or ``--no-amp``; ``--n 1 2 3``; ``--amp true``."""

OVERRIDE = "override"
"""As Hydra has it: ``model.lr=0.1``."""


_PATH_CALLS = ("Path", "pathlib.Path", "PurePath", "os.path.join", "osp.join")


class UnreadError(ValueError):
    """An expression that only the running script could evaluate."""


@dataclass(frozen=True, slots=True)
class ScriptArgument:
    """One argument of a script.

    Attributes:
        flag: ``--epochs``; empty for a positional one.
        name: as an input of a component is called.
        type: ``integer``, ``number``, ``string``, ``boolean`` or ``path``.
        default: None where there is none, or none that can be read.
        required: whether the script refuses to start without it.
        form: how it is given.
        off: of a pair the other flag.
        place: where it is declared, such as ``train.py:12``.
        level: how many words of the subcommand stand before it; 0 is the script's own.
    """

    flag: str
    name: str
    type: str = "string"
    default: Constant | None = None
    choices: tuple[Constant, ...] = ()
    required: bool = False
    help: str = ""
    form: str = VALUE
    off: str = ""
    min: float | None = None
    max: float | None = None
    place: str = ""
    level: int = 0


@dataclass
class FoundArguments:
    """The arguments in their order, and a line for each thing that could not be read.

    Attributes:
        subcommand: the one that is started; none for a script without subcommands.
        fixed: what stands at the end of the command, whatever the inputs are.
    """

    arguments: list[ScriptArgument] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    description: str = ""
    subcommand: Subcommand = ()
    fixed: tuple[str, ...] = ()

    def add(self, argument: ScriptArgument) -> None:
        """Add one, under a name that is a port's and that no other has; the same flag twice counts once."""
        given = (argument.flag, argument.level)
        if argument.flag and any((one.flag, one.level) == given for one in self.arguments):
            return
        name = "".join(char if char.isascii() and (char.isalnum() or char == "_") else "_" for char in argument.name)
        name = f"arg_{name}" if not name or name[0].isdigit() else f"{name}_" if iskeyword(name) else name
        taken = {one.name.lower() for one in self.arguments}
        while name.lower() in taken:
            name += "_"
        argument = _with_text_choices(argument)
        if argument.choices and argument.default is not None and argument.default not in argument.choices:
            self.unread.append(
                f"{argument.place}: the default of {name}, {argument.default!r}, is none of its choices."
            )
            argument = replace(argument, default=None)
        self.arguments.append(replace(argument, name=name))


def _with_text_choices(argument: ScriptArgument) -> ScriptArgument:
    """Choices that are numbers as a range, or else as texts: an ``enum`` of Azure ML's inputs holds texts."""
    numbers = [one for one in argument.choices if isinstance(one, int) and not isinstance(one, bool)]
    if argument.type == "integer" and numbers and sorted(numbers) == list(range(min(numbers), max(numbers) + 1)):
        return replace(argument, choices=(), min=min(numbers), max=max(numbers))
    if argument.choices and argument.type in ("integer", "number"):
        default = None if argument.default is None else str(argument.default)
        return replace(argument, type="string", choices=tuple(map(str, argument.choices)), default=default)
    return argument


def constant_names(sources: Iterable[ScriptSource]) -> dict[str, Any]:
    """Names that are given a constant at a module's top level, once."""
    found: dict[str, Any] = {}
    for source in sources:
        for node in source.tree.body:
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                try:
                    found[node.targets[0].id] = constant_value(node.value, found)
                except UnreadError:
                    found.pop(node.targets[0].id, None)
    return found


def constant_value(node: ast.AST, names: Mapping[str, Any]) -> Any:
    """The value of an expression of constants: literals, known names, arithmetic, paths. Raises UnreadError."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name) and node.id in names:
        return names[node.id]
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        return [constant_value(one, names) for one in node.elts]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = constant_value(node.operand, names)
        if isinstance(value, int | float):
            return -value
    if isinstance(node, ast.BinOp):
        return _computed(node, names)
    if isinstance(node, ast.Call) and not node.keywords:
        return _called(node, names)
    raise UnreadError


def _computed(node: ast.BinOp, names: Mapping[str, Any]) -> Any:
    left, right = constant_value(node.left, names), constant_value(node.right, names)
    numbers = all(isinstance(one, int | float) for one in (left, right))
    if isinstance(node.op, ast.Add) and (numbers or (isinstance(left, str) and isinstance(right, str))):
        return left + right
    if isinstance(node.op, ast.Mult) and numbers:
        return left * right
    if isinstance(node.op, ast.Sub) and numbers:
        return left - right
    if isinstance(node.op, ast.Div) and numbers and right:
        return left / right
    if isinstance(node.op, ast.Pow) and numbers and abs(left) <= 10 and abs(right) <= 32:
        return left**right
    if isinstance(node.op, ast.Div) and isinstance(left, str) and isinstance(right, str):
        return str(PurePath(left, right))
    raise UnreadError


def _called(node: ast.Call, names: Mapping[str, Any]) -> Any:
    name = dotted_name(node.func)
    arguments = [constant_value(one, names) for one in node.args]
    if name in _PATH_CALLS and arguments and all(isinstance(one, str) for one in arguments):
        return str(PurePath(*arguments))
    if name in ("list", "tuple", "set") and len(arguments) == 1 and isinstance(arguments[0], list):
        return arguments[0]
    if name in ("int", "float", "str") and len(arguments) == 1 and isinstance(arguments[0], int | float | str):
        try:
            return {"int": int, "float": float, "str": str}[name](arguments[0])
        except ValueError:
            raise UnreadError from None
    raise UnreadError


def plain_default(value: Any) -> Constant | None:
    """A default that an input can have; None for none, and for what a command cannot say, such as nan or ``''``."""
    if isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str) and value and "'" not in value and "\n" not in value and "${{" not in value:
        return value
    return None


def literal_type_of(value: Any) -> str:
    """The type of an argument by its default."""
    if isinstance(value, bool):
        return "boolean"
    return "integer" if isinstance(value, int) else "number" if isinstance(value, float) else "string"


def spaced_text(values: Sequence[Any]) -> Constant | None:
    """Several values as one text with spaces, for an input; None if one of them has a space in it."""
    texts = [str(one) for one in values]
    return plain_default(" ".join(texts)) if not any(" " in text for text in texts) else None


def help_text(text: Any) -> str:
    """A help text for a description: one line, without the marks of argparse."""
    if not isinstance(text, str) or text == "==SUPPRESS==":
        return ""
    return " ".join(text.replace("(default: %(default)s)", "").replace("%(default)s", "").replace("%%", "%").split())
