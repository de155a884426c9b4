"""The local engine's snapshot is byte for byte what the Azure ML SDK would upload."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from azure.ai.ml import load_component
from azure.ai.ml._utils._asset_utils import get_content_hash, get_upload_files_from_folder
from azure.ai.ml._utils._pathspec import GitWildMatchPattern
from hypothesis import example, given
from hypothesis import strategies as st

from allranks.azure.sdk import runs_left_out
from allranks.errors import StorageError, UsageError
from allranks.local import ignore, snapshot
from allranks.local.folders import RUNS_MARK_TEXT
from allranks.spec.model import Component, Source

LIBRARY = Path(__file__).parents[2] / "components"


def of_sdk(component_yaml: Path) -> tuple[dict[str, bytes], str]:
    """Path to content, and the sha256, as the SDK would upload them."""
    component = load_component(component_yaml)
    with runs_left_out(), component._build_code() as code:
        if code is None:
            return {}, ""
        ignore_file, path = code._ignore_file, code.path
        if Path(path).is_file():
            return {Path(path).name: Path(path).read_bytes()}, get_content_hash(path, ignore_file)
        found = get_upload_files_from_folder(path, ignore_file=ignore_file)
        return {relative: Path(file).read_bytes() for file, relative in found}, get_content_hash(path, ignore_file)


def of_ours(component_yaml: Path) -> tuple[dict[str, bytes], str]:
    sdk = load_component(component_yaml)
    base = component_yaml.parent.resolve()
    component = Component(
        name=sdk.name,
        source=Source(component_yaml, base),
        code=None if sdk.code is None else base / sdk.code,
        includes=tuple(base / include for include in sdk.additional_includes or ()),
    )
    files = snapshot.snapshot_files(component)
    return {file.path: b"".join(file.chunks()) for file in files}, snapshot.content_hash(files)


def write(root: Path, files: dict[str, str]) -> None:
    """Write files below a folder; a name that ends with a slash is an empty folder."""
    for name, content in files.items():
        path = root / name
        (path if name.endswith("/") else path.parent).mkdir(parents=True, exist_ok=True)
        if not name.endswith("/"):
            path.write_text(content)


def component_yaml(root: Path, code: str | None = ".", includes: tuple[str, ...] = ()) -> Path:
    lines = ["type: command", "name: sample", "command: echo", "environment: azureml:some:1"]
    lines += [] if code is None else [f"code: {code}"]
    lines += [f"additional_includes: [{', '.join(includes)}]"] if includes else []
    path = root / "c" / "component.yaml"
    write(root, {"c/component.yaml": "\n".join(lines)})
    return path


TREE = {
    "c/main.py": "print()",
    "c/README.md": "a",
    "c/b.log": "log",
    "c/.hidden": "h",
    "c/.git/config": "g",
    "c/data/x.csv": "1",
    "c/data/deep/x.log": "2",
    "c/data/deep/__pycache__/m.pyc": "3",
    "c/__pycache__/m.pyc": "4",
    "c/keep/important.log": "5",
    "lib/__init__.py": "",
    "lib/one.py": "1",
    "lib/sub/two.log": "2",
    "lib/sub/.amlignore": "*.tmp\n",
    "lib/sub/three.tmp": "3",
    "lib/__pycache__/a.pyc": "6",
    "other/one.txt": "alone",
    "other/b.log": "log",
}


RUNS = {
    "c/.allranks/runs/r/model.pt": "large",
    "c/data/runs/CACHEDIR.TAG": RUNS_MARK_TEXT,
    "c/data/runs/runs/r/model.pt": "large",
    "c/cache/CACHEDIR.TAG": "Signature: 8a477f597d28d172789f06886806bc55",
    "lib/sub/runs/CACHEDIR.TAG": RUNS_MARK_TEXT,
    "lib/sub/runs/runs/r/model.pt": "large",
    "lib/.allranks/mlflow.db": "large",
    "other/.allranks/mlflow.db": "large",
}


@dataclass(frozen=True)
class Case:
    """A component's folder: files and links beside those of ``TREE``, its code, and what it includes."""

    files: dict[str, str] = field(default_factory=dict)
    includes: tuple[str, ...] = ()
    code: str | None = "."
    links: dict[str, str] = field(default_factory=dict)


CASES = {
    "plain": Case(),
    "amlignore wins over gitignore": Case(
        {
            "c/.amlignore": "*.log\n!important.log\n# a comment\n\n/data/x.csv\ncomponent.yaml  \n",
            "c/.gitignore": "*\n",
        }
    ),
    "gitignore": Case({"c/.gitignore": "data/\n.gitignore\n", "c/keep/.gitignore": "*.log"}),
    "all but one is ignored": Case({"c/.amlignore": "*\n!main.py\n"}),
    "all but one is ignored, with an include": Case({"c/.amlignore": "*\n!main.py\n"}, ("../lib",)),
    "includes": Case({}, ("../lib", "../other/one.txt")),
    "ignore files of includes": Case(
        {"c/.amlignore": "*.log\nlib/one.py\ncomponent.yaml\n", "lib/.gitignore": "__init__.py\n/sub/x\n"},
        ("../lib", "../other/", "../other/b.log"),
    ),
    "nested ignore files": Case(
        {"c/data/.amlignore": "/x.csv\n", "c/keep/.amlignore": "*\n", "c/.gitignore": ".gitignore\n.git\n"},
        ("../lib",),
    ),
    "an ignore file is included": Case({"other/.amlignore": "*.py\n"}, ("../other/.amlignore", "../lib")),
    "a later include wins": Case(
        {"second/lib/one.py": "the second", "second/main.py": "the second"},
        ("../lib", "../second/lib", "../second/main.py"),
    ),
    "no code": Case(code=None),
    "no code but includes": Case({"c/.amlignore": "*.log\nlib/one.py\n"}, ("../lib", "../other"), None),
    "a single file": Case(code="./main.py"),
    "a single file and an include": Case({"c/.amlignore": "*.py"}, ("../lib",), "./main.py"),
    "another folder": Case({}, ("./main.py",), "../lib/"),
    "links": Case(
        {"c/.amlignore": "/linked_lib/sub/\n*.tmp\n"},
        links={"c/linked.py": "../lib/one.py", "c/linked_lib": "../lib"},
    ),
    "links and includes": Case(
        {"c/.amlignore": "/linked_data/b.log\n"},
        ("../name_of_link",),
        links={"c/linked.py": "../lib/one.py", "c/linked_data": "../other", "name_of_link": "lib"},
    ),
    "empty folders": Case({"c/empty/too/": "", "lib/empty/": ""}, ("../lib",)),
    "names that differ in case": Case(
        {"c/Zeta.py": "", "c/alpha.py": "", "c/Data/y": "", "c/_x": "", "c/ünï.txt": "ü"}
    ),
    "a folder as an archive": Case({"c/.amlignore": "*.log\n"}, ("../lib.zip", "../other/one.txt")),
    "runs in the code": Case(RUNS),
    "runs in code and includes": Case(RUNS, ("../lib", "../other.zip")),
    "code among runs": Case(
        {"c/.allranks/runs/r/snapshot/main.py": "resubmitted", "c/.allranks/CACHEDIR.TAG": RUNS_MARK_TEXT},
        code="./.allranks/runs/r/snapshot",
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_same_files_and_hash(case: Case, tmp_path: Path) -> None:
    write(tmp_path, TREE | case.files)
    for name, place in case.links.items():
        (tmp_path / name).symlink_to(place)
    path = component_yaml(tmp_path, case.code, case.includes)
    theirs, ours = of_sdk(path), of_ours(path)
    assert sorted(ours[0]) == sorted(theirs[0])
    assert ours == theirs or not ours[0]
    assert b"large" not in ours[0].values(), "a runs folder is never sent"


@pytest.mark.parametrize("folder", sorted(p.parent.name for p in LIBRARY.glob("*/component.yaml")))
def test_same_files_and_hash_for_every_component_of_the_library(folder: str) -> None:
    path = LIBRARY / folder / "component.yaml"
    assert of_ours(path) == of_sdk(path)
    assert "component.yaml" not in of_ours(path)[0], "a changed description must not change the code's hash"


PIECES = [
    "a",
    "b",
    "x.py",
    "*",
    "**",
    "?",
    "/",
    "/",
    "!",
    "#",
    "[ab]",
    "[!a]",
    "[^a]",
    "[",
    "]",
    "\\",
    "-",
    " ",
    "^",
    ".",
]
PATHS = [
    "a",
    "b",
    "a/b",
    "a/x.py",
    "x.py",
    "b/a/x.py",
    ".",
    "../a/b",
    "a/b/a/b",
    "[",
    "^",
    "#a",
    "!a",
    "a b",
    "\\",
    "ab",
]


@given(st.lists(st.lists(st.sampled_from(PIECES), max_size=7).map("".join), max_size=4))
@example(["[a-[ab]"])
def test_every_pattern_means_what_it_means_to_the_sdk(lines: list[str]) -> None:
    try:
        theirs = [GitWildMatchPattern(line.rstrip()) for line in lines]
    except (ValueError, re.error):
        with pytest.raises(ValueError, match="not a valid pattern"):
            ignore.rules_of(tuple(lines))
        return
    ours = ignore.IgnoreFile("", ignore.rules_of(tuple(lines)))
    for path in PATHS:
        expected = False
        for pattern in theirs:
            if pattern.include is not None and pattern.match_file(path) is not None:
                expected = pattern.include
        assert ours.excludes_relative(path) == expected, (lines, path)


def component(root: Path, *includes: Path) -> Component:
    return Component(name="sample", source=Source(None, root), code=root, includes=includes)


def test_build_copies_links_and_keeps_modes(tmp_path: Path) -> None:
    write(tmp_path, {"code/run.sh": "#!/bin/sh", "code/deep/a.txt": "a", "elsewhere": "linked"})
    (tmp_path / "code/run.sh").chmod(0o755)
    (tmp_path / "code/link").symlink_to(tmp_path / "elsewhere")
    snapshot.copy_snapshot(snapshot.snapshot_files(component(tmp_path / "code")), tmp_path / "built")
    assert os.access(tmp_path / "built/run.sh", os.X_OK)
    assert not (tmp_path / "built/link").is_symlink()
    assert (tmp_path / "built/link").read_text() == "linked"
    assert (tmp_path / "built/deep/a.txt").read_text() == "a"


def test_a_built_archive_is_the_one_that_was_hashed(tmp_path: Path) -> None:
    write(tmp_path, {"code/a": "a", "lib/b": "b"})
    files = snapshot.snapshot_files(component(tmp_path / "code", tmp_path / "lib.zip"))
    snapshot.copy_snapshot(files, tmp_path / "built")
    assert (tmp_path / "built/lib.zip").read_bytes() == b"".join(next(f for f in files if f.path == "lib.zip").chunks())


def test_what_is_missing_or_endless_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"no file or folder .*/nowhere"):
        snapshot.snapshot_files(component(tmp_path / "nowhere"))
    (tmp_path / "code").mkdir()
    with pytest.raises(StorageError, match=r"no file or folder .*/absent"):
        snapshot.snapshot_files(component(tmp_path / "code", tmp_path / "absent"))
    (tmp_path / "code/dangling").symlink_to("gone")
    with pytest.raises(StorageError, match="dangling"):
        snapshot.snapshot_files(component(tmp_path / "code"))
    (tmp_path / "code/dangling").unlink()
    (tmp_path / "code/again").symlink_to(tmp_path / "code")
    with pytest.raises(StorageError, match="again is a link to a folder that contains it"):
        snapshot.snapshot_files(component(tmp_path / "code"))


def test_a_wrong_pattern_names_its_file(tmp_path: Path) -> None:
    write(tmp_path, {".amlignore": "ok\n[z-a]\n"})
    with pytest.raises(UsageError, match=r"\.amlignore: '\[z-a\]' is not a valid pattern"):
        snapshot.snapshot_files(component(tmp_path))
