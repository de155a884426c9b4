"""What compiling a template gave is kept, and taken only for just that template."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from jinja2 import Environment, FileSystemLoader

from allranks.local.page import render
from allranks.local.page.compiled import CompiledTemplates


@pytest.fixture(autouse=True)
def _keeps_bytecode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)


def filled(folder: Path, *, trim: bool = True) -> str:
    """The page that a new process would make."""
    loader, kept = FileSystemLoader(folder), CompiledTemplates(folder)
    made = Environment(loader=loader, bytecode_cache=kept, autoescape=True, trim_blocks=trim)
    return made.get_template("page.html").render(name="<you>")


def kept_file(folder: Path) -> Path:
    (file,) = (folder / "__pycache__").iterdir()
    return file


def test_kept_code_is_what_fills_the_next_page(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("Hello {{ name }}")
    assert filled(tmp_path) == "Hello &lt;you&gt;"
    kept = kept_file(tmp_path)
    kept.write_bytes(kept.read_bytes().replace(b"Hello ", b"HELLO "))
    assert filled(tmp_path) == "HELLO &lt;you&gt;"


def test_another_text_or_setting_is_compiled_anew(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("{% if name %}\nHello{% endif %}")
    assert filled(tmp_path) == "Hello"
    assert filled(tmp_path, trim=False) == "\nHello"
    page.write_text("Good morning")
    assert filled(tmp_path) == "Good morning"


@pytest.mark.parametrize("length", [0, 10, 60, -1])
def test_a_torn_file_is_compiled_anew(tmp_path: Path, length: int) -> None:
    (tmp_path / "page.html").write_text("Hello {{ name }}")
    filled(tmp_path)
    kept = kept_file(tmp_path)
    whole = kept.read_bytes()
    kept.write_bytes(whole[:length])
    assert filled(tmp_path) == "Hello &lt;you&gt;"
    assert kept.read_bytes() == whole


def test_nothing_is_kept_where_python_keeps_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tmp_path / "page.html").write_text("Hello")
    assert filled(tmp_path) == "Hello"
    assert not (tmp_path / "__pycache__").exists()


def test_what_is_kept_is_no_template_itself() -> None:
    for _ in range(2):  # the second time it lies beside them
        render._environment.cache_clear()
        render.prepare_templates()
