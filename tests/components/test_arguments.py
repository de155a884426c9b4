"""Each component's script takes exactly the arguments that its YAML gives it: the two are compared, not trusted."""

from __future__ import annotations

import argparse
import importlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from shared.settings.command_line import make_parser, read_settings
from tests.components.support import run_component

ROOT = Path(__file__).parents[2]
FLAG = re.compile(r"--([a-z0-9-]+) '\$\{\{(inputs|outputs)\.(\w+)\}\}'")
WRONG = {"integer": ("abc", "1.5"), "number": ("abc",)}


@dataclass(frozen=True)
class Compared:
    """A component's YAML, the part of its command after the script, and the script's arguments by flag."""

    document: dict[str, Any]
    arguments: str
    actions: dict[str, argparse.Action]

    @property
    def flags(self) -> list[tuple[str, str, str]]:
        """Flag, ``inputs`` or ``outputs``, port."""
        return FLAG.findall(self.arguments)


def scripts() -> dict[str, tuple[Path, Path]]:
    """Component name to its YAML and to the script that its command runs, which may be another component's."""
    found = {}
    for path in sorted(ROOT.glob("components/*/component.yaml")):
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
        if document["command"].startswith("mldesigner"):
            continue  # made from a function's signature; its own test compares the two
        name = re.search(r"\w+\.py", document["command"])
        included = [path.parent / other for other in document.get("additional_includes", [])]
        for script in (path.parent / name[0] if name else path, *included):
            if name and script.name == name[0] and script.is_file():
                found[path.parent.name] = (path, script.resolve())
    return found


@pytest.fixture(scope="module", params=sorted(scripts()))
def component(request: pytest.FixtureRequest) -> Compared:
    path, script = scripts()[request.param]
    module = importlib.import_module(f"components.{script.stem}.{script.stem}")
    parser = make_parser(module.Settings) if hasattr(module, "Settings") else module.parser()
    actions = parser._actions
    by_flag = {option[2:]: action for action in actions for option in action.option_strings if option[:2] == "--"}
    del by_flag["help"]
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    return Compared(document, document["command"].split(script.name, 1)[1], by_flag)


@pytest.mark.parametrize(
    ("flag", "instead"),
    [
        ("--cache-gb", "the mode download"),
        ("--data-2", "into one folder"),
        ("--data-weights", "Repeat"),
        ("--autotune", "compare short runs"),
        ("--cpu-offload", "CPUOffloadPolicy"),
    ],
)
def test_an_input_that_is_removed_is_refused_by_name(
    flag: str, instead: str, capfd: pytest.CaptureFixture[str]
) -> None:
    given = [word for name in ("data", "model", "checkpoints", "metrics") for word in (f"--{name}", ".")]
    for spelled in ([flag, "5"], [f"{flag}=5"]):
        text = refusal_of("train_ddp", [*given, *spelled], capfd)
        assert f"{flag[2:].replace('-', '_')} is removed" in text
        assert instead in text


@pytest.mark.parametrize("dataset", ["cifar", "idx"])
def test_a_format_that_is_removed_is_refused_by_name(dataset: str, capfd: pytest.CaptureFixture[str]) -> None:
    text = refusal_of("prepare_data", ["--dataset", dataset, "--output-data", "o"], capfd)
    assert f"dataset {dataset} is not read: convert" in text


def refusal_of(component: str, words: list[str], capfd: pytest.CaptureFixture[str]) -> str:
    """What a component's script prints, read in this process, when it refuses its arguments."""
    module = importlib.import_module(f"components.{component}.{component}")
    with pytest.raises(SystemExit) as ended:
        read_settings(module.Settings, words=words)
    assert ended.value.code == 2
    return capfd.readouterr().err


@pytest.mark.slow
def test_the_command_gives_every_port_as_one_quoted_argument_of_its_name(component: Compared) -> None:
    command, inputs = component.document["command"], component.document["inputs"]
    assert sorted(flag for flag, _, _ in component.flags) == sorted(component.actions)
    ports = [(side, port) for side in ("inputs", "outputs") for port in component.document[side]]
    assert [port for port in ports if "'${{%s.%s}}'" % port not in command] == []  # noqa: UP031
    assert all(flag == port.replace("_", "-") for flag, side, port in component.flags if side == "inputs")
    assert command.count("${{") == len(re.findall(r"'\$\{\{\w+\.\w+\}\}'", command))
    bracketed = re.findall(r"\$\[\[(.*?)\]\]", command)
    optional = {port for part in bracketed for _, _, port in FLAG.findall(part)}
    assert optional == {name for name, given in inputs.items() if given.get("optional")}


def test_types_choices_defaults_and_required_agree(component: Compared) -> None:
    for flag, side, port in component.flags:
        action, given = component.actions[flag], component.document[side][port]
        if side == "outputs":
            assert action.required, flag
            continue
        default = given.get("default")
        assert action.default == default, flag
        assert action.required == (default is None and not given.get("optional", False)), flag
        assert list(action.choices or []) == given.get("enum", []), flag
        parse = action.type if callable(action.type) else str
        if default is not None:
            assert parse(str(default)) == default, flag
        for text in WRONG.get(given["type"], ()):
            with pytest.raises((ValueError, argparse.ArgumentTypeError)):
                parse(text)


def test_designer_users_are_told_about_everything(component: Compared) -> None:
    for side in ("inputs", "outputs"):
        for name, given in component.document[side].items():
            assert given.get("description", "").strip().endswith("."), name
            if side == "inputs" and given["type"] in ("integer", "number"):
                assert "min" in given, name


def test_a_trainers_ranges_are_those_of_its_script(component: Compared) -> None:
    if not component.document["name"].startswith("train_"):
        return  # the others check their ranges when the ranks have met, all at once
    for flag, _, port in component.flags:
        given, parse = component.document["inputs"].get(port, {}), component.actions.get(flag)
        if given.get("type") == "number":
            with pytest.raises(argparse.ArgumentTypeError):
                parse.type("nan")
        for bound, beyond in (("min", -1), ("max", 1)):
            if bound in given and parse is not None:
                assert parse.type(str(given[bound])) == given[bound], flag
                with pytest.raises(argparse.ArgumentTypeError):
                    parse.type(str(given[bound] + beyond))


def test_a_port_has_one_type_and_one_range_in_all_trainers() -> None:
    seen: dict[str, dict[str, Any]] = {}
    for path in sorted(ROOT.glob("components/train_*/component.yaml")):
        for port, given in yaml.safe_load(path.read_text(encoding="utf-8"))["inputs"].items():
            kind = {name: given.get(name) for name in ("type", "min", "max")}
            assert seen.setdefault(port, kind) == kind, f"{path.parent.name}: {port}"


def test_a_wrong_argument_is_said_by_one_rank(tmp_path: Path) -> None:
    done = run_component("train_ddp", "--batch-size", 0, folder=tmp_path, processes=2)
    assert done.codes == (2, 2)
    assert done.output.count("error:") == done.output.count("--batch-size") == 1
    assert "argument --batch-size: 0 is out of range: 1 or more" in done.output
