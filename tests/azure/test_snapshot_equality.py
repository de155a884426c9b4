"""The local engine's snapshot is byte for byte what the Azure ML SDK would upload."""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

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
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(content))


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


def plain(root: Path) -> Path:
    return component_yaml(root)


def aml_ignore(root: Path) -> Path:
    write(
        root,
        {
            "c/.amlignore": "*.log\n!important.log\n# a comment\n\n/data/x.csv\ncomponent.yaml  \n",
            "c/.gitignore": "*\n",
        },
    )
    return component_yaml(root)


def git_ignore(root: Path) -> Path:
    write(root, {"c/.gitignore": "data/\n.gitignore\n", "c/keep/.gitignore": "*.log"})
    return component_yaml(root)


def everything_ignored_but_one(root: Path) -> Path:
    write(root, {"c/.amlignore": "*\n!main.py\n"})
    return component_yaml(root)


def everything_ignored_but_one_with_an_include(root: Path) -> Path:
    write(root, {"c/.amlignore": "*\n!main.py\n"})
    return component_yaml(root, includes=("../lib",))


def includes(root: Path) -> Path:
    return component_yaml(root, includes=("../lib", "../other/one.txt"))


def includes_with_ignore_files(root: Path) -> Path:
    write(root, {"c/.amlignore": "*.log\nlib/one.py\ncomponent.yaml\n", "lib/.gitignore": "__init__.py\n/sub/x\n"})
    return component_yaml(root, includes=("../lib", "../other/", "../other/b.log"))


def nested_ignore_files_with_includes(root: Path) -> Path:
    write(root, {"c/data/.amlignore": "/x.csv\n", "c/keep/.amlignore": "*\n", "c/.gitignore": ".gitignore\n.git\n"})
    return component_yaml(root, includes=("../lib",))


def an_ignore_file_that_is_included(root: Path) -> Path:
    write(root, {"other/.amlignore": "*.py\n"})
    return component_yaml(root, includes=("../other/.amlignore", "../lib"))


def a_later_include_wins(root: Path) -> Path:
    write(root, {"second/lib/one.py": "the second", "second/main.py": "the second"})
    return component_yaml(root, includes=("../lib", "../second/lib", "../second/main.py"))


def no_code(root: Path) -> Path:
    return component_yaml(root, code=None)


def no_code_but_includes(root: Path) -> Path:
    write(root, {"c/.amlignore": "*.log\nlib/one.py\n"})
    return component_yaml(root, code=None, includes=("../lib", "../other"))


def a_single_file(root: Path) -> Path:
    return component_yaml(root, code="./main.py")


def a_single_file_and_an_include(root: Path) -> Path:
    write(root, {"c/.amlignore": "*.py"})
    return component_yaml(root, code="./main.py", includes=("../lib",))


def another_folder(root: Path) -> Path:
    return component_yaml(root, code="../lib/", includes=("./main.py",))


def links(root: Path) -> Path:
    (root / "c" / "linked.py").symlink_to("../lib/one.py")
    (root / "c" / "linked_lib").symlink_to(root / "lib")
    write(root, {"c/.amlignore": "/linked_lib/sub/\n*.tmp\n"})
    return component_yaml(root)


def links_with_includes(root: Path) -> Path:
    (root / "c" / "linked.py").symlink_to("../lib/one.py")
    (root / "c" / "linked_data").symlink_to(root / "other")
    (root / "name_of_link").symlink_to(root / "lib")
    write(root, {"c/.amlignore": "/linked_data/b.log\n"})
    return component_yaml(root, includes=("../name_of_link",))


def empty_folders(root: Path) -> Path:
    (root / "c" / "empty" / "too").mkdir(parents=True)
    (root / "lib" / "empty").mkdir()
    return component_yaml(root, includes=("../lib",))


def names_that_differ_in_case(root: Path) -> Path:
    write(root, {"c/Zeta.py": "", "c/alpha.py": "", "c/Data/y": "", "c/_x": "", "c/ünï.txt": "ü"})
    return component_yaml(root)


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


def runs_in_the_code(root: Path) -> Path:
    write(root, RUNS)
    return component_yaml(root)


def runs_in_code_and_includes(root: Path) -> Path:
    write(root, RUNS)
    return component_yaml(root, includes=("../lib", "../other.zip"))


def code_that_lies_among_runs(root: Path) -> Path:
    write(root, {"c/.allranks/runs/r/snapshot/main.py": "resubmitted", "c/.allranks/CACHEDIR.TAG": RUNS_MARK_TEXT})
    return component_yaml(root, code="./.allranks/runs/r/snapshot")


def a_folder_as_an_archive(root: Path) -> Path:
    write(root, {"c/.amlignore": "*.log\n"})
    return component_yaml(root, includes=("../lib.zip", "../other/one.txt"))


CASES: list[Callable[[Path], Path]] = [
    plain, aml_ignore, git_ignore, everything_ignored_but_one, everything_ignored_but_one_with_an_include, includes,
    includes_with_ignore_files, nested_ignore_files_with_includes, an_ignore_file_that_is_included,
    a_later_include_wins, no_code_but_includes, a_single_file, a_single_file_and_an_include, another_folder, links,
    links_with_includes,
    empty_folders, names_that_differ_in_case, a_folder_as_an_archive, runs_in_the_code, runs_in_code_and_includes,
    code_that_lies_among_runs,
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_same_files_and_hash(case: Callable[[Path], Path], tmp_path: Path) -> None:
    write(tmp_path, TREE)
    path = case(tmp_path)
    theirs, ours = of_sdk(path), of_ours(path)
    assert sorted(ours[0]) == sorted(theirs[0])
    assert ours == theirs
    assert b"large" not in ours[0].values(), "a runs folder is never sent"


def test_no_code_means_no_files(tmp_path: Path) -> None:
    path = no_code(tmp_path)
    assert of_sdk(path)[0] == of_ours(path)[0] == {}


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


def test_a_small_tree_takes_two_milliseconds(tmp_path: Path) -> None:
    write(
        tmp_path,
        {f"code/f{i % 4}/{i}.py": "x" * 2000 for i in range(30)}
        | {"code/.amlignore": "*.log\nbuild/\n", "lib/a.py": ""},
    )
    sample = component(tmp_path / "code", tmp_path / "lib")

    def seconds() -> float:
        start = perf_counter()
        snapshot.content_hash(snapshot.snapshot_files(sample))
        return perf_counter() - start

    assert min(seconds() for _ in range(20)) < 0.002 * 3  # thrice the aim: the machine may be busy
