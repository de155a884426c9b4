"""The version: printed, and raised everywhere in a checkout at once."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from allranks import catalogue, library, versioning
from allranks.errors import StorageError, UsageError
from tests.cli.conftest import Called

ROOT = Path(__file__).parents[2]


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A checkout of its own, seen as the library by this process."""
    for folder in ("allranks", *library.FOLDERS, "docs"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / file, tmp_path)
    monkeypatch.setattr(library, "root", lambda: tmp_path)
    for function in (catalogue.component_files, catalogue.environment_files, catalogue.pipeline_files):
        function.cache_clear()
    yield tmp_path
    for function in (catalogue.component_files, catalogue.environment_files, catalogue.pipeline_files):
        function.cache_clear()


def written(root: Path) -> dict[str, str]:
    files = (path for path in root.rglob("*") if path.is_file() and path.suffix != ".png")
    return {str(path.relative_to(root)): path.read_text() for path in files}


def test_without_arguments_it_is_printed(cli: Callable[..., Called]) -> None:
    assert cli("version").out == f"{library.VERSION}\n"
    assert cli("version", "--json").json == {"version": library.VERSION}


def test_raising_sets_it_in_every_asset_and_reference(cli: Callable[..., Called], checkout: Path) -> None:
    old = library.VERSION
    (checkout / "docs/page.md").write_text(f"`azureml:train_ddp:{old}`, `azureml:theirs:{old}` and {old} in words\n")
    done = cli("version", "--raise", "9.1.0", "--json")
    assert done.json["new"] == "9.1.0"
    for kind, name in (("components", "component.yaml"), ("environments", "environment.yaml")):
        for path in checkout.glob(f"{kind}/*/{name}"):
            document = yaml.safe_load(path.read_text())
            assert document["version"] == "9.1.0", path
            assert f":{old}" not in str(document.get("environment")), path
    assert f'VERSION = "{old}"' not in (checkout / "allranks/library.py").read_text()
    assert 'version = "9.1.0"' in (checkout / "pyproject.toml").read_text()
    assert (checkout / "docs/page.md").read_text() == (
        f"`azureml:train_ddp:9.1.0`, `azureml:theirs:{old}` and {old} in words\n"
    )
    assert "mldesigner==0.1.0b23" in (checkout / "pyproject.toml").read_text()
    environ = {"PYTHONPATH": str(checkout), "PATH": "/usr/bin:/bin"}
    program = [sys.executable, "-m", "allranks", "--version"]
    assert subprocess.run(program, env=environ, cwd=checkout, capture_output=True, text=True, check=True).stdout == (
        "allranks 9.1.0\n"
    )


def stale(checkout: Path) -> str:
    """The files of a checkout that are made from others, and are not as they should be."""
    program = [sys.executable, "-m", "allranks.renew", "--check"]
    environ = {"PYTHONPATH": str(checkout), "PATH": "/usr/bin:/bin"}
    return subprocess.run(program, env=environ, cwd=checkout, capture_output=True, text=True, check=False).stdout


@pytest.mark.exhaustive
def test_the_pages_follow(cli: Callable[..., Called], checkout: Path) -> None:
    before = stale(checkout)
    assert cli("version", "--raise", "major").code == 0
    assert "1.0.0" in (checkout / "docs/components/train_ddp.md").read_text()
    assert stale(checkout) == before


def test_nothing_else_changes(cli: Callable[..., Called], checkout: Path) -> None:
    before = written(checkout)
    dry = cli("version", "--raise", "patch", "--dry-run", "--json").json
    assert written(checkout) == before
    assert cli("version", "--raise", "patch").code == 0
    after = written(checkout)
    changed = {name for name in after if after[name] != before.get(name)}
    assert changed == set(dry["files"])
    for name in changed:
        lines = zip(before[name].splitlines(), after[name].splitlines(), strict=True)
        for old, new in lines:
            assert old == new or new == old.replace(library.VERSION, dry["new"]), name


@pytest.mark.parametrize(
    ("old", "to", "new"),
    [
        ("0.1.0", "patch", "0.1.1"),
        ("0.1.9", "minor", "0.2.0"),
        ("0.9.1", "major", "1.0.0"),
        ("0.1.0", "0.10.0", "0.10.0"),
        ("1.0.0rc1", "1.0.0", "1.0.0"),
    ],
)
def test_what_the_next_version_is(checkout: Path, monkeypatch: pytest.MonkeyPatch, old: str, to: str, new: str) -> None:
    now = library.VERSION
    for path in checkout.rglob("*"):
        if path.suffix in (".py", ".yaml", ".toml") and path.is_file():
            text = path.read_text()
            path.write_text(re.sub(rf"{re.escape(now)}(?![\w.])", old, text))
    monkeypatch.setattr(library, "VERSION", old)
    assert versioning.version_change(to).new == new


@pytest.mark.parametrize("to", ["0.0.1", library.VERSION, "1", "1.2", "v1.2.3", "next", "1.2.3.4", "1.2.3-x"])
def test_what_is_no_higher_version_is_refused(cli: Callable[..., Called], to: str) -> None:
    done = cli("version", "--raise", to)
    assert (done.code, done.out) == (2, "")
    assert to in done.err


def test_a_file_that_lags_behind_is_named(checkout: Path) -> None:
    file = checkout / "components/train_ddp/component.yaml"
    file.write_text(re.sub("^version: .*", 'version: "0.0.9"', file.read_text(), flags=re.MULTILINE))
    with pytest.raises(UsageError, match=r"train_ddp/component\.yaml does not state the version"):
        versioning.version_change("patch")


def test_an_installed_library_is_not_raised(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (checkout / "pyproject.toml").unlink()
    with pytest.raises(UsageError, match="is installed, and not a checkout"):
        versioning.version_change("patch")


def test_what_cannot_be_written_leaves_all_as_it_was(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    change = versioning.version_change("patch")
    before = written(checkout)
    gone = checkout / "gone" / "file.py"
    change.texts[gone] = "text"
    with pytest.raises(StorageError, match="gone"):
        versioning.write_change(change)
    assert written(checkout) == before
