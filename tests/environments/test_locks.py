"""One place for what is installed: requirements, extras, locks, the tested set and the images agree with each other."""

from __future__ import annotations

import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from allranks import catalogue
from allranks.local.requirements import EQUIVALENT_PACKAGES, read_requirements
from allranks.spec import read_pipeline

ROOT = Path(__file__).parents[2]
FOLDERS = {name: path.parent for name, path in catalogue.environment_files().items()}
NOT_IN_AN_INDEX = {"horovod"}
OF_CUDA = ("cuda-", "nvidia-", "triton")
"""What the build of torch needs that PyPI has."""


def read_pins(path: Path) -> dict[str, str]:
    """The versions of a lock, as ``numpy`` to ``==2.4.6``; empty if there is no such file."""
    lines = path.read_text().splitlines() if path.is_file() else []
    return {name: sign + pin for name, sign, pin in (line.partition("==") for line in lines if "==" in line[:80])}


TESTED = read_pins(ROOT / "constraints.txt")


def asked(environment: str, *lists: str) -> list[Requirement]:
    files = [FOLDERS[environment] / name for name in lists]
    return [one for file in files if file.is_file() for one in read_requirements(file).values()]


def closure(requirements: list[Requirement]) -> dict[str, str]:
    """Every package that these need here, with its version; by what is installed, so no index is asked."""
    found: dict[str, str] = {}
    rest = [(one, extra) for one in requirements for extra in ("", *one.extras)]
    seen = set()
    while rest:
        requirement, extra = rest.pop()
        name = canonicalize_name(requirement.name)
        if (name, extra) in seen or name in NOT_IN_AN_INDEX:
            continue
        seen.add((name, extra))
        installed = metadata.distribution(name)
        found[name] = installed.version.partition("+")[0]
        for line in installed.requires or []:
            needed = Requirement(line)
            if name == "torch" and canonicalize_name(needed.name).startswith(OF_CUDA):
                continue  # the locks are for a build that brings its own, or has none
            if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                rest += [(needed, one) for one in ("", *needed.extras)]
    return found


def extra(name: str) -> dict[str, str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    def lines(group: str) -> list[Requirement]:
        direct = [Requirement(line) for line in project["optional-dependencies"][group]]
        own = [one for each in direct if each.name == "allranks" for other in each.extras for one in lines(other)]
        return own + [each for each in direct if each.name != "allranks"]

    return closure([*map(Requirement, project["dependencies"]), *lines(name)])


def satisfied_by(packages: dict[str, str]) -> set[str]:
    """The environments all of whose requirements are among these packages."""

    def has(one: Requirement) -> bool:
        version = packages.get(canonicalize_name(one.name)) or packages.get(EQUIVALENT_PACKAGES.get(one.name, ""))
        return version is not None and one.specifier.contains(version, prereleases=True)

    return {name for name in FOLDERS if all(has(one) for one in asked(name, "requirements.txt"))}


@pytest.mark.parametrize(
    ("name", "environments"),
    [
        ("local", {"pytorch", "evaluate"}),
        ("torch", {"pytorch"}),
        ("tensorflow", {"tensorflow"}),
        ("text", {"transformers"}),
        ("deepspeed", {"deepspeed"}),
        ("lightning", {"lightning"}),
        ("azure", set()),
        ("dev", set(FOLDERS) - {"horovod"}),
    ],
)
def test_an_extra_brings_what_the_steps_of_its_environments_ask_for(name: str, environments: set[str]) -> None:
    assert satisfied_by(extra(name)) == environments


@pytest.mark.parametrize("name", ["image_classification", "image_classification_torchrun", "language_model"])
def test_the_first_pipelines_of_the_readme_need_local_alone(name: str) -> None:
    pipeline = read_pipeline(catalogue.pipeline_files()[name])
    used = {catalogue.environment_of(step.component.environment.reference) for step in pipeline.steps.values()}
    assert used <= satisfied_by(extra("local"))


@pytest.mark.parametrize("name", FOLDERS)
def test_a_lock_is_the_part_of_the_tested_set_that_its_environment_needs(name: str) -> None:
    lock = read_pins(FOLDERS[name] / "lock.txt")
    assert {package: TESTED.get(package) for package in lock} == lock
    for one in asked(name, "requirements.txt", "optional.txt"):
        if one.name not in NOT_IN_AN_INDEX:
            assert one.specifier.contains(lock[one.name].removeprefix("=="), prereleases=True), one
    needed = closure(asked(name, "requirements.txt", "optional.txt"))
    assert {package.partition("==")[0] for package in lock} == set(needed), "renew it with: make locks"


@pytest.mark.parametrize("name", FOLDERS)
def test_a_lock_leaves_the_build_of_torch_open(name: str) -> None:
    """Each build needs other packages for CUDA, or none, and pins them itself."""
    for file in ("lock.txt", "image-lock.txt"):
        pins = read_pins(FOLDERS[name] / file)
        assert not [pin for pin in pins.values() if "+" in pin]
        assert name == "tensorflow" or not [one for one in pins if re.match("nvidia-(?!ml-py)|cuda-|triton$", one)]


@pytest.mark.parametrize("name", FOLDERS)
def test_an_image_installs_the_lock_and_nothing_without_a_version(name: str) -> None:
    text = (FOLDERS[name] / "Dockerfile").read_text()
    files = {"lock.txt", "image-lock.txt"} if (FOLDERS[name] / "image.txt").is_file() else {"lock.txt"}
    copied = {word for line in text.splitlines() if line.startswith("COPY") for word in line.split()[1:-1]}
    assert files <= copied
    assert not {"requirements.txt", "optional.txt"} & copied, "ranges are for people; images take the lock"
    installs = [line for line in text.splitlines() if "pip install" in line or "install.py" in line]
    assert not [line for line in installs if re.search(r"[\w\]][<>~]=?\d", line)], "a range"
    image = read_pins(FOLDERS[name] / "image-lock.txt")
    differing = {one for one, pin in image.items() if TESTED.get(one, pin) != pin}
    assert not differing, "an image has other versions than the tests"
    for one in asked(name, "image.txt"):
        assert one.name in image | read_pins(FOLDERS[name] / "lock.txt")
