"""Write ``components.pyi``, the types of ``allranks.components``, from the components' YAML."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from allranks import library
from allranks.spec import Component, Input
from allranks.spec.values import plain_number

STUB_FILE = library.root() / "allranks" / "azure" / "components.pyi"
_BEGIN = "# Below: generated from the components' YAML by `make renew`. Edit the YAML instead.\n"
"""What stands above this line of the file is written by hand, and kept."""
_ALIASES = {"string": "Text", "integer": "Whole", "number": "Number", "boolean": "bool | _Later"}
_WIDTH = 120 - 8
"""Of a docstring's lines, without their indentation."""


def components_stub(components: Sequence[Component]) -> str:
    """The text of ``components.pyi``: a class for each set of outputs and for each component's call, one for all."""
    head, mark, _ = STUB_FILE.read_text(encoding="utf-8").partition(_BEGIN)
    outputs = dict.fromkeys(map(_outputs, components))
    names = "\n".join(f"    {one.name}: {_camel(one.name)}" for one in components)
    every = f'class Components:\n    """The library\'s components by name."""\n\n{names}\n'
    return "\n".join([head + mark, *outputs, *map(_component, components), every, "components: Components\n"])


def _outputs(component: Component) -> str:
    ports = "\n".join(f"    {name}: NodeOutput" for name in component.outputs) or "    pass"
    return f"class {_outputs_name(component)}:\n{ports}\n"


def _outputs_name(component: Component) -> str:
    """``ModelMetricsOutputs``: components with the same outputs share a class."""
    return "".join(map(_camel, component.outputs)) + "Outputs"


def _component(component: Component) -> str:
    parameters = "\n".join(f"        {_parameter(port)}," for port in _required_first(component))
    star = "        *,\n" if component.inputs else ""
    return f"""\
class {_camel(component.name)}(CommandComponent):
    def __call__(
        self,
{star}{parameters}
    ) -> Step[{_outputs_name(component)}]:
{textwrap.indent(_doc(component), " " * 8)}
"""


def _required_first(component: Component) -> list[Input]:
    return sorted(component.inputs.values(), key=lambda port: not port.required)


def _parameter(port: Input) -> str:
    annotation = _annotation(port)
    if port.required:
        return f"{port.name}: {annotation}"
    if port.default is None:
        return f"{port.name}: {annotation} | None = None"
    return f"{port.name}: {annotation} = {_literal(plain_number(port.default))}"


def _annotation(port: Input) -> str:
    """The type of an argument; choices are shown, and any text is taken: a pipeline's parameter is just a text."""
    if port.is_data:
        return "Data"
    if set(port.enum) == {"true", "false"}:
        return "Flag"
    choices = ", ".join(_literal(choice) for choice in port.enum)
    return f"Literal[{choices}] | Text" if choices and port.type == "string" else _ALIASES[port.type]


def _literal(value: object) -> str:
    return repr(value) if not isinstance(value, str) else '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _doc(component: Component) -> str:
    lines = textwrap.wrap('"""' + _escaped(component.description), _WIDTH, break_on_hyphens=False)
    lines += ["", "Args:"] if component.inputs else []
    for port in _required_first(component):
        text = f"{port.name}: {_escaped(port.description)}"
        lines += textwrap.wrap(
            text, _WIDTH, initial_indent="    ", subsequent_indent="        ", break_on_hyphens=False
        )
    return "\n".join([*lines, '"""'])


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"""', "'''")


def _camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))
