"""Azure ML's ``${{ }}`` references and ``$[[ ]]`` optional parts: what they name, and what becomes of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from allranks.errors import UsageError
from allranks.spec.model import Literal

_EXPRESSION = re.compile(r"\$\{\{([^{}]*)\}\}")
_ALMOST = re.compile(r"(?:(?<!\$)\{\{\s*|(?<!\$)\$\{\s*)((?:inputs|outputs)\.[A-Za-z_][\w.]*)\s*\}\}?", re.ASCII)
_OPTIONAL = re.compile(r"\$\[\[(.*?)\]\]", re.DOTALL)
_NAME = r"[A-Za-z_]\w*(?:\.\w+)*"
_WORD = re.compile(
    rf"(?P<scope>inputs|outputs|search_space|parent\.inputs|parent\.outputs)\.(?P<name>{_NAME})"
    rf"|parent\.jobs\.(?P<step>[\w-]+)\.(?P<side>inputs|outputs)\.(?P<port>{_NAME})",
    re.ASCII,
)

STEP_INPUT_SCOPE = "parent.jobs.inputs"
"""Scope of ``${{parent.jobs.STEP.inputs.NAME}}``: the value that another step is given, not one that it makes."""


@dataclass(frozen=True, slots=True)
class Reference:
    """One ``${{ }}``.

    Attributes:
        scope: ``inputs``, ``parent.jobs`` and so on; empty when the expression is none that Azure ML knows.
        name: the input, output or search-space name (dotted for a group's member); the whole text when unknown.
        step: the step that ``parent.jobs`` names, else empty. ``parent.jobs`` is the scope of what it makes.
        optional: whether it stands inside ``$[[ ]]``.
    """

    scope: str
    name: str
    step: str = ""
    optional: bool = False

    def __str__(self) -> str:
        """Write the expression as Azure ML's YAML does."""
        if self.step:
            side = "inputs" if self.scope == STEP_INPUT_SCOPE else "outputs"
            return f"${{{{parent.jobs.{self.step}.{side}.{self.name}}}}}"
        return f"${{{{{self.scope}.{self.name}}}}}" if self.scope else f"${{{{{self.name}}}}}"


def _reference(word: str, *, optional: bool = False) -> Reference:
    word = word.strip()
    match = _WORD.fullmatch(word)
    if match is None:
        return Reference("", word, optional=optional)
    if match["step"]:
        scope = STEP_INPUT_SCOPE if match["side"] == "inputs" else "parent.jobs"
        return Reference(scope, match["port"], match["step"], optional)
    return Reference(match["scope"], match["name"], optional=optional)


def _parts(text: str) -> Iterator[tuple[str, bool]]:
    """Cut a text at its ``$[[ ]]``: pairs of the part without the brackets, and whether it stood inside them."""
    end = 0
    for match in _OPTIONAL.finditer(text):
        yield text[end : match.start()], False
        yield match[1], True
        end = match.end()
    yield text[end:], False


def find_references(text: str) -> tuple[Reference, ...]:
    """List the references of a command or a bound value, in the order written."""
    if "${{" not in text:
        return ()
    return tuple(
        _reference(match[1], optional=optional)
        for part, optional in _parts(text)
        for match in _EXPRESSION.finditer(part)
    )


def single_reference(value: object) -> Reference | None:
    """Return the reference if ``value`` is a text that is one reference and nothing else, else None."""
    match = _EXPRESSION.fullmatch(value.strip()) if isinstance(value, str) else None
    return None if match is None else _reference(match[1])


def bracket_faults(text: str) -> list[str]:
    """Describe brackets that are opened and not closed, which Azure ML would pass on to the shell."""
    found = []
    closed = "".join(part for part, _ in _parts(text))
    rest = _EXPRESSION.sub("", closed)
    if "${{" in rest:
        broken = rest[rest.index("${{") :][:40].splitlines()[0]
        found.append(f"'{broken}' opens an expression that is not closed by '}}}}'.")
    if "$[[" in closed:
        broken = closed[closed.index("$[[") :][:40].splitlines()[0]
        found.append(f"'{broken}' opens an optional part that is not closed by ']]'.")
    return found


def near_references(text: str) -> Iterator[tuple[str, Reference]]:
    """Yield what is one character short of a reference, as written and as meant: ``{{inputs.x}}``, ``${inputs.x}``."""
    for match in _ALMOST.finditer(text):
        yield match[0], _reference(match[1])


def replace_references(text: str, value: Callable[[Reference], str]) -> str:
    """Replace each ``${{ }}`` of a text by ``value(reference)``, once: what a value contains is not read again."""
    return _EXPRESSION.sub(lambda match: value(_reference(match[1])), text)


def literal_text(value: Literal) -> str:
    """Write a literal as Azure ML puts it into a command: ``True``, ``10``, ``0.1``, and a string as it is."""
    return str(value)


def render_command(command: str, inputs: Mapping[str, str | None], outputs: Mapping[str, str]) -> str:
    """Fill in a command with the text of each input and the path of each output.

    An input's text is a literal, or the path of data; it is None or absent where there is no value. Names of the search
    space are looked up among the inputs too: a trial gives them so.

    Raises:
        UsageError: for an expression that names nothing here, an input without a value outside ``$[[ ]]``, or a
            bracket that is not closed.
    """
    broken = bracket_faults(command)
    if broken:
        raise UsageError(f"The command cannot be filled in: {broken[0]}")

    def look_up(reference: Reference) -> str | None:
        table: Mapping[str, str | None] = outputs if reference.scope == "outputs" else inputs
        if reference.scope not in ("inputs", "outputs", "search_space"):
            raise UsageError(f"{reference} cannot stand in a command; there ${{{{inputs.NAME}}}} and its like can.")
        return table.get(declared_name(reference.name, table))

    def required(reference: Reference) -> str:
        value = look_up(reference)
        if value is None:
            raise UsageError(f"{reference} has no value.", hint=f"Give one, or put it into $[[--flag {reference}]].")
        return value

    filled = []
    for part, optional in _parts(command):
        if optional and any(look_up(reference) is None for reference in find_references(part)):
            continue
        filled.append(replace_references(part, required))
    return "".join(filled)


def declared_name(name: str, declared: Mapping[str, object]) -> str:
    """Return the declared name that ``name`` means: older YAML writes ``${{inputs.data.path}}`` for ``inputs.data``."""
    short = name.removesuffix(".path")
    return short if name not in declared and short in declared else name


def single_quoted_inputs(command: str) -> frozenset[str]:
    """Return the inputs that stand inside single quotes of the shell command; a quote in a value would end them."""
    return frozenset(one.name for one in _single_quoted(command) if one.scope in ("inputs", "search_space"))


def quote_fault(command: str, inputs: Mapping[str, str | None], outputs: Mapping[str, str]) -> str:
    """Say which value would end the single quotes in which the shell command puts it; empty if none would."""
    for reference in _single_quoted(command):
        table: Mapping[str, str | None] = outputs if reference.scope == "outputs" else inputs
        value = table.get(declared_name(reference.name, table)) or ""
        if "'" in value:
            return f"{reference} is {value!r}: its single quote would end the quoting in the command."
    return ""


def _single_quoted(command: str) -> list[Reference]:
    return [reference for reference, quote in _quoting(command) if quote == "'"]


def bare_inputs(command: str) -> tuple[str, ...]:
    """Return the inputs that stand outside all quotes of the shell command, each once, in the order of the command."""
    bare = (reference.name for reference, quote in _quoting(command) if not quote and reference.scope == "inputs")
    return tuple(dict.fromkeys(bare))


def _quoting(command: str) -> Iterator[tuple[Reference, str]]:
    """Every reference of a command with the quote that it stands in; empty for none."""
    quote = ""
    at = 0
    while at < len(command):
        character = command[at]
        if match := _EXPRESSION.match(command, at):
            yield _reference(match[1]), quote
            at = match.end()
            continue
        if character == "\\" and quote != "'":
            at += 2
            continue
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character == "#" and (at == 0 or command[at - 1].isspace()):  # a comment may hold a lone apostrophe
            at = command.find("\n", at)
            if at < 0:
                break
        at += 1
