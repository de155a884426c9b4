"""The library under mldesigner: a typed package of it, and snapshots that are complete by themselves."""

from __future__ import annotations

import ast
import os
import sys
from pathlib import Path

import yaml
from mldesigner._cli.mldesigner_commands import main

from allranks import catalogue, library
from tests.azure.quick_sdk import forked


def mldesigner(*arguments: str, cwd: Path) -> None:
    def call() -> None:
        os.chdir(cwd)
        sys.argv = ["mldesigner", *arguments]
        main()

    done = forked(call)
    assert done.returncode == 0, done.stdout + done.stderr


def test_generate_writes_a_function_for_every_component(tmp_path: Path) -> None:
    source = str(library.root() / "components" / "*" / "component.yaml")
    mldesigner("generate", "--source", source, "--package-name", "typed", cwd=tmp_path)
    (module,) = tmp_path.rglob("_components.py")
    functions = {node.name: node for node in ast.parse(module.read_text()).body if isinstance(node, ast.FunctionDef)}
    assert set(catalogue.COMPONENTS) <= functions.keys()
    for name in catalogue.COMPONENTS:
        declared = yaml.safe_load(catalogue.component_files()[name].read_text())["inputs"]
        arguments = functions[name].args
        assert {one.arg for one in (*arguments.args, *arguments.kwonlyargs)} == declared.keys()


def test_compile_makes_snapshots_that_need_nothing_else(tmp_path: Path) -> None:
    source = library.root() / "pipelines" / "image_classification.py"
    mldesigner("compile", "--source", str(source), "--output", str(tmp_path), cwd=library.root())
    for name in ("prepare_data", "train_ddp", "evaluate"):
        folder = tmp_path / name
        assert (folder / f"{name}.py").read_text() == (library.root() / "components" / name / f"{name}.py").read_text()
        assert (folder / "shared" / "distributed" / "__init__.py").is_file()
        document = yaml.safe_load((folder / "component.yaml").read_text())
        assert "additional_includes" not in document
    jobs = yaml.safe_load((tmp_path / "image_classification" / "image_classification.yaml").read_text())["jobs"]
    assert {name: step["component"] for name, step in jobs.items()} == {
        "prepare": "../prepare_data/component.yaml",
        "train": "../train_ddp/component.yaml",
        "evaluate": "../evaluate/component.yaml",
    }
