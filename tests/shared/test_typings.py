"""The types that are written here for Keras and TensorFlow name what these packages have."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

TYPINGS = Path(__file__).parents[1] / "typings"


@pytest.mark.slow
@pytest.mark.parametrize("stub", sorted(TYPINGS.rglob("*.pyi")), ids=lambda stub: str(stub.relative_to(TYPINGS)))
def test_each_name_exists(stub: Path) -> None:
    module = importlib.import_module(
        ".".join(stub.relative_to(TYPINGS).with_suffix("").parts).removesuffix(".__init__")
    )
    for node in ast.parse(stub.read_text(encoding="utf-8")).body:
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AnnAssign):
            continue
        name = ast.unparse(node.target) if isinstance(node, ast.AnnAssign) else node.name
        found = getattr(module, name)
        for member in node.body if isinstance(node, ast.ClassDef) else ():
            if isinstance(member, ast.FunctionDef) and not member.name.startswith("__"):
                assert hasattr(found, member.name), f"{name}.{member.name}"
