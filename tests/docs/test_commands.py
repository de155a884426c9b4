"""Run every command of every page as written.

With ``--exhaustive``, and in continuous integration, each runs in the installation that its page prescribes; otherwise
in the environment of the tests, and long trainings are only planned.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from tests.azure.stand_in.fixture import StandIn, azure_server
from tests.components.training import write_digits
from tests.docs.blocks import COMMANDS, FAILED_PAGE, JOURNEYS_PAGE, PAGES, ROOT, SCRIPT_PAGE, SHOWN, TYPED, blocks_of
from tests.docs.installing import Installation, clean_copy, installed, installed_wheel

__all__ = ["azure_server"]

MINE = """\
type: pipeline
settings: {default_compute: serverless}
jobs:
  count:
    type: command
    component:
      type: command
      name: count
      version: "1"
      inputs: {data: {type: uri_folder}}
      outputs: {result: {type: uri_folder}}
      environment: azureml:theirs:1
      command: ls ${{inputs.data}} > ${{outputs.result}}/names.txt
    inputs: {data: {type: uri_folder, path: "azureml:mnist:1"}}
"""
MAPPED = "--map azureml:mnist=./mnist"
OF_EIGHT = "Standard_ND96amsr_A100_v4"
HERE = Installation(Path(sys.prefix), ROOT)
ORDER = ("list", "show", "copy", "register", "submit", "lint", "runs watch", "runs")
WHOLE_LIBRARY = ("allranks register --workspace", "allranks register --registry shared")
"""Commands that publish the whole library, which tests/azure/test_register.py does as well."""


def test_every_command_has_its_proof() -> None:
    unknown = [f"{command.page}: {command.text}" for command in COMMANDS if not command.how]
    assert not unknown, f"say in tests/docs/blocks.py how these are proved: {unknown}"
    assert len(COMMANDS) > 60, "the pages were read"
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {extra for command in COMMANDS for extra in command.extras.split(",")} <= extras.keys()


def test_no_page_installs_from_an_index_what_is_not_published_there() -> None:
    lines = [line for page in PAGES for line in page.read_text().splitlines() if page.name != "decisions.md"]
    assert [line for line in lines if re.search(r"pip install (-\S+ )*[\"']?allranks\b", line)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_shows_can_be_read(page: Path) -> None:
    for _, language, text in blocks_of(page):
        assert language in ("", *SHOWN), f"{page}: a block of {language}; a command's block has no language"
        if language == "python":
            compile(text, str(page), "exec")
        if language == "yaml":
            yaml.safe_load(text)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return clean_copy(tmp_path_factory.mktemp("copy"))


@pytest.fixture(scope="module")
def local(request: pytest.FixtureRequest, exhaustive: bool) -> Installation:
    if exhaustive or "CLEAN_COPY" in os.environ:  # continuous integration has installed it there
        return installed(request.getfixturevalue("copy"), "local")
    return HERE


@pytest.fixture(scope="module")
def azure(request: pytest.FixtureRequest, exhaustive: bool) -> Installation:
    return installed(request.getfixturevalue("copy"), "azure") if exhaustive else HERE


def folder_of_a_user(folder: Path) -> Path:
    """A folder with what the pages take for granted: a pipeline of one's own and its data."""
    folder.mkdir(exist_ok=True)
    (folder / "my_pipeline.yml").write_text(MINE)
    (folder / "mnist").mkdir()
    (folder / "mnist" / "digits.csv").write_text("1,2\n")
    write_digits(folder / "DATA", rows=200)
    (folder / "table").mkdir()
    (folder / "table" / "passengers.csv").write_text("pclass,age,fate\n1,29,alive\n3,?,dead\n")
    (folder / "pictures" / "cats").mkdir(parents=True)
    for name in ("MODEL", "EVALUATION_1", "EVALUATION_2", "weights"):
        (folder / name).mkdir()
    return folder


def of(extras: str, *ways: str) -> Iterator[str]:
    """The commands that are proved in one of these ways under an installation, each once."""
    yield from dict.fromkeys(command.text for command in COMMANDS if command.extras == extras and command.how in ways)


def problem_with(installation: Installation, text: str, cwd: Path, **variables: str) -> str:
    """Empty, or what a command said that failed."""
    return said_of(text, installation.call(text, cwd, **variables))


def said_of(text: str, done: subprocess.CompletedProcess[str]) -> str:
    """Empty, or what a command said that failed."""
    said = done.stdout + done.stderr
    fine = done.returncode == 0 and "Traceback" not in said
    return "" if fine else f"{text}: exit {done.returncode}\n{said[-2500:]}"


def problems_of_local(installation: Installation, cwd: Path, *, trains: bool) -> list[str]:
    """What of the commands for one machine does not do what it should."""
    found = [problem_with(installation, text, cwd) for text in of("local", "run", *(["train"] if trains else []))]
    found += [problem_with(installation, f"{text} {MAPPED}", cwd) for text in of("local", "mapped")]
    texts = [f"{text} --dry-run" for text in of("local", "plan", *([] if trains else ["train"]))]
    for text, done in zip(texts, installation.call_forked(texts, ["allranks.cli.run"], cwd), strict=True):
        to_build = done.returncode == 2 and "allranks env build" in done.stderr  # one message, which names the command
        if "Traceback" in done.stderr or not (done.returncode == 0 or to_build):
            found.append(f"{text}: exit {done.returncode}\n{done.stdout[-500:]}{done.stderr[-2000:]}")
    return list(filter(None, found))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_commands_for_one_machine(local: Installation, tmp_path: Path, exhaustive: bool) -> None:
    assert not problems_of_local(local, folder_of_a_user(tmp_path), trains=exhaustive)


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.timeout(900)
def test_the_commands_for_one_machine_from_the_wheel_in_an_empty_folder(
    copy: Path, local: Installation, tmp_path: Path
) -> None:
    wheel = installed_wheel(copy, tmp_path / "empty", local)
    assert not problems_of_local(wheel, folder_of_a_user(wheel.cwd / "of-a-user"), trains=False)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_commands_for_azure(azure: Installation, azure_server: StandIn, tmp_path: Path, exhaustive: bool) -> None:
    """Against the stand-in, so that each is sent; the lines that need a job or a cluster find what the others made."""
    azure_server.reset()
    azure_server.script("succeeds", pace="4")  # between two looks at a job `--watch` waits ever longer
    environ = dict(azure_server.environment)
    azure_server.add_cluster("a100x8-cluster", OF_EIGHT)
    chosen = (text for text in of("azure", "run", "azure") if exhaustive or text not in WHOLE_LIBRARY)
    texts = [text.replace("JOB", "latest") for text in sorted(chosen, key=place_of)]
    found = []
    for text, done in zip(texts, azure.call_forked(texts, ["azure.ai.ml"], tmp_path, **environ), strict=True):
        problem = said_of(text, done)
        late = re.match(r"allranks runs (cancel|logs) ", text) and re.search(r"it (is|has) succeeded", problem)
        found.append("" if late else problem)  # `submit --watch` has followed the job to its end, and they say so
    assert not list(filter(None, found)), "\n".join(filter(None, found))


def place_of(text: str) -> int:
    """Where a command stands among those that need what others made."""
    return next(place for place, word in enumerate(ORDER) if text.startswith(f"allranks {word}"))


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.timeout(900)
def test_a_component_of_your_own_runs_as_it_is_typed(copy: Path, local: Installation, tmp_path: Path) -> None:
    (extras,) = {command.extras for command in COMMANDS if command.page == TYPED}
    installation = installed(copy, extras, like=local)
    page = (ROOT / TYPED).read_text()
    for name, text in re.findall(r"```(?:python|yaml)\n# (\S+)\n(.*?)```", page, flags=re.DOTALL):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    commands = [command.text for command in COMMANDS if command.page == TYPED and command.how == "typed"]
    wanted = ["copy shared .", "lint", "run pipeline.yaml", "run pipeline.yaml factor=3 --scale mean=1x2"]
    assert [shlex.split(text)[1:] for text in commands[:4]] == [shlex.split(text) for text in wanted]
    said = {text: installation.must(text, tmp_path) for text in commands}
    assert "nothing wrong" in said["allranks lint"]
    assert "pipeline.yaml factor=3 --scale mean=1x2" in said["allranks runs"]
    results = [path.read_text() for path in sorted(tmp_path.glob(".allranks/runs/*/steps/mean/outputs/out/mean.txt"))]
    assert results == ["3.0\n", "1.5\n", "1.5\n"], "the mean of 0 2 4 6, and of 0 3; the last run is the second resumed"
    assert "1 of 1 steps reused" in said["allranks run --resume latest"]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_script_of_your_own_runs_as_it_is_typed(local: Installation, tmp_path: Path, exhaustive: bool) -> None:
    (text,) = re.findall(r"```python\n# train.py\n(.*?)```", (ROOT / SCRIPT_PAGE).read_text(), flags=re.DOTALL)
    (tmp_path / "train.py").write_text(text)
    commands = [command.text for command in COMMANDS if command.page == SCRIPT_PAGE and command.how == "typed"]
    plans = () if exhaustive else ("allranks run . epochs=1",)
    said = {text: local.must(f"{text} --dry-run" if text in plans else text, tmp_path) for text in commands}
    first, *_ = said.values()
    assert [f"[rank {rank}] epoch 2 on rank {rank} of 4" in first for rank in range(4)] == [True] * 4
    assert "outputs/ (1 file)" in first
    assert "inputs: epochs; outputs: output_dir" in said["allranks init train.py"]
    assert "nothing wrong" in said["allranks lint ."]
    assert ("4 ranks, 2 nodes x 2" if exhaustive else "train: 2 x 2") in said["allranks run . epochs=1"]
    assert (tmp_path / "my_ddp/component.yaml").is_file()
    for texts, shown in journeys():
        lost = [part for line in shown for part in line.split("…") if part not in "".join(map(said.__getitem__, texts))]
        assert not lost, f"what docs/journeys.md shows of {texts} is another: {lost}"


def journeys() -> Iterator[tuple[list[str], list[str]]]:
    """The commands of the page of journeys below which stands what they print, with the lines of that."""
    blocks = [(language, text.splitlines()) for _, language, text in blocks_of(ROOT / JOURNEYS_PAGE)]
    for (language, lines), (next_language, shown) in pairwise(blocks):
        if (language, next_language) == ("", "text"):
            yield lines, shown


def test_the_journeys_are_those_that_other_pages_type() -> None:
    typed = {command.text for command in COMMANDS if command.page == SCRIPT_PAGE and command.how == "typed"}
    mine = [command.text for command in COMMANDS if command.page == JOURNEYS_PAGE and command.how == "typed"]
    assert len(mine) == 3
    assert set(mine) <= typed
    assert [text for texts, _ in journeys() for text in texts] == mine, "below each stands what it prints"
    (cells,) = [text for _, language, text in blocks_of(ROOT / JOURNEYS_PAGE) if language == "python"]
    notebook = json.loads((ROOT / "examples/compare_runs.ipynb").read_text())
    code = "".join("".join(cell["source"]) + "\n" for cell in notebook["cells"] if cell["cell_type"] == "code")
    assert [line for line in cells.splitlines() if line and line not in code.splitlines()] == []


@pytest.mark.slow
def test_a_failed_run_leads_to_its_cause_as_it_is_typed(tmp_path: Path) -> None:
    """In the environment of the tests: no framework is used, so nothing depends on what a page installs."""
    said, codes = "", []
    for _, language, text in blocks_of(ROOT / FAILED_PAGE):
        if language == "python":
            (tmp_path / "train.py").write_text(text)
        elif language == "text":
            lost = [part for line in text.splitlines() for part in line.split("…") if part not in said]
            assert not lost, f"{lost} is not in\n{said}"
            said = ""
        else:
            for line in text.splitlines():
                done = HERE.call(line, tmp_path)
                codes.append(done.returncode)
                said += done.stdout + done.stderr
    assert codes == [1, 0, 0, 0, 0, 0, 0]
    assert said == "", "each command's words are shown"
