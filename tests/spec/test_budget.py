"""Documents that would end the interpreter, take all memory or never end: one message each, at once."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from allranks.errors import SpecError, UsageError
from allranks.spec import read_spec
from allranks.spec.budget import Budget, current_budget
from allranks.spec.document import parse_yaml
from tests.waiting import TIMEOUT

COMMAND = "{type: command, command: echo, environment: {image: ubuntu}}"

# One process reads them all: the unmended reader ends it with a segmentation fault.
DEEP = """
import sys
from pathlib import Path
from allranks.errors import SpecError
from allranks.spec.document import parse_yaml
for text in ("a:\\n  " + "- " * 30_000 + "x", "a: " + "[" * 200_000 + "]" * 200_000, "{a: " * 100_000 + "}" * 100_000,
             "? " * 30_000 + "x", "".join(" " * n + "a:\\n" for n in range(3_000))):
    try:
        parse_yaml(text, Path("x.yaml"))
    except SpecError as error:
        print(error)
"""


def test_nesting_that_libyaml_cannot_bear_is_refused():
    done = subprocess.run([sys.executable, "-c", DEEP], capture_output=True, text=True, check=False, timeout=TIMEOUT)
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert len(said) == 5
    assert all("nested too deeply to be read: more than 100 mappings and lists" in line for line in said), said


def test_wide_documents_and_brackets_in_texts_are_read():
    text = "a:\n" + "".join(f"  k{n}: '[{{[{{'\n" for n in range(2_000)) + "b: " + "[" * 90 + "]" * 90 + "\n"
    data, source = parse_yaml(text + "c: |\n" + " " * 900 + "far to the right\n", Path("x.yaml"))
    assert len(data["a"]) == 2_000
    assert not source.problems


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: " + "9" * 5_000, "is an integer of more than 300 digits"),
        ("a: 0x" + "f" * 5_000, "is an integer of more than 300 digits"),
        ('a: "x\\0y"', "holds a NUL character"),
    ],
)
def test_odd_scalars_are_named(text, says):
    _, source = parse_yaml(text, Path("x.yaml"))
    assert [problem.where for problem in source.problems] == ["a"]
    assert says in str(source.problems[0])


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ("inputs: {n: {type: number, max: .inf, default: 1}}", "inputs.n.max: inf is not a finite number"),
        ("inputs: {n: {type: integer, min: .nan}}", "inputs.n.min: nan is not a finite number"),
        (f"resources: {{instance_count: '{'9' * 5_000}'}}", "resources.instance_count: '999"),
        ('additional_includes: ["a\\0b"]', "additional_includes.0: holds a NUL character"),
    ],
)
def test_a_component_with_them_is_refused_in_words(tmp_path, more, says):
    (tmp_path / "c.yaml").write_text(
        f"type: command\nname: c\ncommand: echo '${{{{inputs.n}}}}'\nenvironment: {{image: ubuntu}}\n{more}\n"
    )
    with pytest.raises(SpecError) as caught:
        read_spec(tmp_path / "c.yaml")
    assert says in str(caught.value)


def test_a_file_that_is_too_large_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setenv("ALLRANKS_BUDGET", "yaml_bytes=100")
    (tmp_path / "big.yaml").write_text("# " + "x" * 200 + "\ntype: command\n")
    with pytest.raises(
        SpecError, match=r"has 217 bytes; at most 100 are read .*ALLRANKS_BUDGET=yaml_bytes=N, N up to 1,073,741,824"
    ):
        read_spec(tmp_path / "big.yaml")


def chain(folder: Path, length: int, times: int) -> Path:
    """Write pipelines of which each runs the next one several times; the last one runs a command."""
    for number in range(length):
        inner = f"{{type: pipeline, component: ./p{number + 1}.yaml}}" if number < length - 1 else COMMAND
        jobs = "".join(f"  s{time}: {inner}\n" for time in range(times))
        (folder / f"p{number}.yaml").write_text(f"type: pipeline\njobs:\n{jobs}")
    return folder / "p0.yaml"


def test_pipelines_that_multiply_or_go_deep_are_refused(tmp_path):
    with pytest.raises(
        SpecError, match=r"has 16,384 steps with those of its nested pipelines; at most 5,000"
    ) as caught:
        read_spec(chain(tmp_path, 13, 4))
    assert str(caught.value).count("at most 5,000") == 1
    (deep := tmp_path / "deep").mkdir()
    with pytest.raises(SpecError, match="more than 20 pipelines are inside each other"):
        read_spec(chain(deep, 200, 1))
    assert read_spec(chain(tmp_path, Budget().nested, 1)).steps


def test_limits_are_raised_and_lowered_by_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("ALLRANKS_BUDGET", "depth=150, digits=20,nested=25")
    assert current_budget() == dataclasses.replace(Budget(), depth=150, digits=20, nested=25)
    _, source = parse_yaml("a: " + "[" * 120 + "]" * 120 + "\nb: " + "9" * 21, Path("x.yaml"))
    assert [problem.where for problem in source.problems] == ["b"]
    assert read_spec(chain(tmp_path, 25, 1)).steps


@pytest.mark.parametrize(
    "value", ["steps", "steps=0", "steps=-1", "steps=x", "steps=٣", "steps=" + "9" * 5_000, "dept=3"]
)
def test_a_wrong_budget_is_refused_in_words(monkeypatch, value):
    monkeypatch.setenv("ALLRANKS_BUDGET", value)
    with pytest.raises(UsageError, match="ALLRANKS_BUDGET: ") as caught:
        current_budget()
    assert len(str(caught.value)) < 300


def test_every_limit_can_be_raised_as_far_as_it_says(monkeypatch):
    for one in dataclasses.fields(Budget):
        monkeypatch.setenv("ALLRANKS_BUDGET", f"{one.name}={one.metadata['most']}")
        assert getattr(current_budget(), one.name) == one.metadata["most"] > one.default
