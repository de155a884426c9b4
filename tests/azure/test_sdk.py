"""``sdk.py`` alone knows what the SDKs do not promise, and the SDK that is installed has all of it."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOM = Path(__file__).parents[2] / "allranks" / "azure"
SDK = ROOM / "sdk.py"

HOLDERS = {
    "_build_inputs": "azure.ai.ml.entities:PipelineJob",
    "_client": "azure.ai.ml._restclient.runhistory.operations:RunsOperations",
    "_code": "azure.ai.ml:MLClient",
    "_component": "azure.ai.ml.entities:Command",
    "_config": "azure.ai.ml._restclient.runhistory.operations:RunsOperations",
    "_data": "azure.ai.ml.entities._job.pipeline._io:NodeOutput",
    "_get": "azure.ai.ml.operations:EnvironmentOperations",
    "_get_attrs": "azure.ai.ml.entities:Command",
    "_get_component_version": "azure.ai.ml.operations:ComponentOperations",
    "_meta": "azure.ai.ml.entities._job.pipeline._io:NodeOutput",
    "_operation": "azure.ai.ml.operations._run_operations:RunOperations",
    "_operation_scope": "azure.ai.ml.operations:JobOperations",
    "_pipeline_builder": "azure.ai.ml.dsl._pipeline_decorator:pipeline",
    "_port_name": "azure.ai.ml.entities._job.pipeline._io:NodeOutput",
    "_requests_pipeline": "azure.ai.ml.operations:JobOperations",
    "_runs_operations": "azure.ai.ml.operations:JobOperations",
    "_schema_for_validation": "azure.ai.ml.entities:Command",
    "_source_path": "azure.ai.ml.entities:CommandComponent",
    "_to_dict": "azure.ai.ml.entities:CommandComponent",
    "_to_job": "azure.ai.ml.entities:Pipeline",
    "_to_rest_object": "azure.ai.ml.entities:CommandComponent",
}
"""Where the SDK has each attribute that ``sdk.py`` reads; a class that inherits it will do."""


def attributes(source: str) -> Iterator[str]:
    """The private attributes that a file takes from objects other than its own, also by getattr and its like."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and not (isinstance(node.value, ast.Name) and node.value.id == "self"):
            yield node.attr
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id.endswith("attr"):
            yield from (one.value for one in node.args if isinstance(one, ast.Constant) and isinstance(one.value, str))


def private(source: str) -> set[str]:
    return {name for name in attributes(source) if name.startswith("_") and not name.startswith("__")}


def imports() -> list[tuple[str, str]]:
    """Every name that ``sdk.py`` imports from the SDK, and its module."""
    nodes = [node for node in ast.walk(ast.parse(SDK.read_text())) if isinstance(node, ast.ImportFrom)]
    return [(str(one.module), name.name) for one in nodes for name in one.names if str(one.module).startswith("azure.")]


@pytest.mark.parametrize(
    "file", [*ROOM.glob("*.py*"), ROOM.parents[1] / "tools" / "stubs.py"], ids=lambda file: file.name
)
def test_private_names_stand_in_one_file(file: Path) -> None:
    if file == SDK:
        return
    text = file.read_text()
    assert not re.findall(r"(?:azure|mldesigner)\.[\w.]*\b_\w+", re.sub(r"allranks\.azure", "", text))
    assert not private(text)


@pytest.mark.parametrize(("module", "name"), imports())
def test_what_is_imported_is_there(module: str, name: str) -> None:
    assert hasattr(importlib.import_module(module), name)


def test_every_attribute_has_a_holder() -> None:
    assert private(SDK.read_text()) == HOLDERS.keys()


@pytest.mark.slow
@pytest.mark.parametrize(("name", "place"), HOLDERS.items())
def test_the_holder_has_the_attribute(name: str, place: str) -> None:
    module, _, inner = place.partition(":")
    holder = getattr(importlib.import_module(module), inner)
    classes = inspect.getmro(holder) if inspect.isclass(holder) else [holder]
    sources = [inspect.getsource(one) for one in classes if one.__module__.startswith("azure.")]
    assert any(re.search(rf"def {name}\(|\b(self|wrapper)\.{name}(: .*)? = ", source) for source in sources)


def test_the_logger_of_a_registry_is_named_after_a_module() -> None:
    from allranks.azure.sdk import REGISTRY_LOGGER

    assert importlib.import_module(REGISTRY_LOGGER).module_logger.name == REGISTRY_LOGGER
