"""The table of builds agrees with the Dockerfiles, the tested versions, any locks, the drivers and the sizes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from allranks import catalogue
from allranks.sizes import all_sizes, build_table, find_size, judge_image
from tests.helpers import ROOT
from tools.pages import images_in_words

TABLE = build_table()
ON_GPUS = [name for name, builds in TABLE.images.items() if builds]
PIN = re.compile(r"^(?P<name>[A-Za-z][\w.-]*)(?:\[[\w,-]+\])?==(?P<version>[^\s;#\\]+)", re.MULTILINE)


def dockerfile(image: str) -> str:
    return (catalogue.environment_files()[image].parent / "Dockerfile").read_text()


def pinned(path: Path) -> dict[str, str]:
    """The exact versions of a file of requirements, without what says for which machine they are built."""
    return {match["name"].lower(): match["version"].partition("+")[0] for match in PIN.finditer(path.read_text())}


def test_every_environment_and_every_gpu_is_in_the_table() -> None:
    assert set(TABLE.images) == set(catalogue.ENVIRONMENTS)
    assert set(TABLE.capabilities) == {size.gpu for size in all_sizes().values() if size.gpu}


@pytest.mark.parametrize("image", TABLE.images)
def test_an_image_is_built_upon_the_one_base(image: str) -> None:
    bases = re.findall(r"^FROM (\S+)$", dockerfile(image), re.MULTILINE)
    assert bases == [TABLE.base if TABLE.images[image] else TABLE.plain_base]


def test_the_base_has_the_cuda_of_what_is_compiled_in_it() -> None:
    assert f"-cuda{TABLE.base_cuda}-" in TABLE.base
    compiled = [build for build in TABLE.builds.values() if build.version == "compiled"]
    assert {build.cuda for build in [*compiled, TABLE.builds["torch"]]} == {TABLE.base_cuda}
    assert TABLE.builds["torch"].index.endswith("/cu" + TABLE.base_cuda.replace(".", ""))


@pytest.mark.parametrize("image", ON_GPUS)
def test_torch_comes_from_the_index_of_its_cuda_and_before_all_else(image: str) -> None:
    torch = TABLE.builds["torch"]
    wanted = {f"torch=={torch.version}", "$(grep '^torch==' lock.txt)"}  # the lock is held against the table below
    lines = {f'RUN pip install --no-cache-dir "{one}" --index-url {torch.index}' for one in wanted}
    installs = [
        line for line in dockerfile(image).splitlines() if re.match(r"RUN (.* )?(pip install|python install)", line)
    ]
    assert bool(lines & set(installs)) == (torch in TABLE.images[image])
    if torch in TABLE.images[image]:
        assert installs[0] in lines, "a list of requirements before it would bring PyPI's build"


@pytest.mark.parametrize("image", ON_GPUS)
def test_tensorflow_is_the_build_for_gpus_with_a_cudnn_for_every_gpu(image: str) -> None:
    tensorflow, text = TABLE.builds["tensorflow"], dockerfile(image)
    locked = catalogue.environment_files()[image].parent / "image-lock.txt"
    pins = {
        **dict(re.findall(r'"([\w-]+)(?:\[[\w-]+\])?==([\d.]+)"', text)),
        **(pinned(locked) if locked.is_file() else {}),
    }
    if tensorflow not in TABLE.images[image]:
        assert "tensorflow" not in pins
        return
    assert pins["tensorflow"] == tensorflow.version
    if TABLE.builds["torch"] not in TABLE.images[image]:  # which brings CUDA's libraries, and that cuDNN
        assert pins["nvidia-cudnn-cu12"] == tensorflow.cudnn


def test_what_is_compiled_has_code_for_the_gpus_of_the_table() -> None:
    deepspeed, horovod = TABLE.builds["deepspeed"].machine_code, TABLE.builds["horovod"].machine_code
    assert f'TORCH_CUDA_ARCH_LIST="{";".join(f"{one}.{two}" for one, two in deepspeed)}"' in dockerfile("deepspeed")
    assert f"HOROVOD_BUILD_CUDA_CC_LIST={','.join(f'{one}{two}' for one, two in horovod)}" in dockerfile("horovod")


def test_the_tested_versions_are_the_shipped_versions() -> None:
    tested = pinned(ROOT / "constraints.txt")
    assert tested["torch"] == TABLE.builds["torch"].version
    assert tested["tensorflow-cpu"] == TABLE.builds["tensorflow"].version


@pytest.mark.parametrize("image", ON_GPUS)
def test_requirements_and_locks_take_the_builds_of_the_table(image: str) -> None:
    """Every list of an environment, whatever tool made it."""
    names = {"torch": "torch", "tensorflow-cpu": "tensorflow", "tensorflow": "tensorflow"}
    folder = catalogue.environment_files()[image].parent
    lists = [path for path in folder.iterdir() if path.suffix in {".txt", ".lock"}]
    assert lists
    for path in lists:
        for line in path.read_text().splitlines():
            text = re.split(r"\s[#;\\]", line)[0].strip()
            if not re.match(r"(torch|tensorflow(-cpu)?)\b", text):
                continue
            requirement = Requirement(text)
            if requirement.name in names:
                version = TABLE.builds[names[requirement.name]].version
                assert requirement.specifier.contains(Version(version)), f"{path.name}: {text}"
        assert not any(name.endswith("-cu13") for name in pinned(path)), f"{path.name} has packages of CUDA 13"


def test_every_build_runs_on_the_oldest_driver_of_azure_s_hosts() -> None:
    assert all(build.driver <= TABLE.oldest_driver for build in TABLE.builds.values())


@pytest.mark.parametrize(
    "size", [size for size in all_sizes().values() if size.gpu and not size.retired], ids=lambda size: size.name
)
def test_every_size_of_today_suits_or_says_why_not(size) -> None:
    words = images_in_words(size)
    left_out = {"GB300", "GB200", "MI300X", "RTX PRO 6000"}
    assert words.startswith("none: ") == (size.gpu in left_out), words
    assert words == "all" or size.gpu in left_out | {"H100", "H200"}


@pytest.mark.parametrize(
    ("image", "size", "suits", "reason"),
    [
        ("pytorch", "Standard_ND40rs_v2", True, ""),
        ("pytorch", "Standard_NC4as_T4_v3", True, ""),  # machine code for 7.0 runs on 7.5
        ("deepspeed", "Standard_NV36ads_A10_v5", True, ""),
        ("pytorch", "Standard_ND96isr_H200_v5", True, ""),
        ("tensorflow", "Standard_ND96isr_H100_v5", True, "needs a driver of series 555 or newer"),
        ("tensorflow", "Standard_NC24ads_A100_v4", True, ""),
        ("pytorch", "Standard_NC128ds_xl_RTXPRO6000BSE_v6", False, "no code for RTX PRO 6000 (capability 12.0)"),
        ("tensorflow", "Standard_NC128ds_xl_RTXPRO6000BSE_v6", False, "no code for RTX PRO 6000"),
        ("lightning", "Standard_ND96isr_MI300X_v5", False, "AMD"),
        ("evaluate", "Standard_ND128isr_NDR_GB200_v6", False, "ARM"),
        ("compare", "Standard_ND96isr_MI300X_v5", True, ""),
        ("pytorch", "Standard_HC44rs", True, ""),
    ],
)
def test_what_an_image_is_worth_on_a_size(image: str, size: str, suits: bool, reason: str) -> None:
    known = find_size(size)
    assert known is not None
    verdict = judge_image(image, known)
    assert verdict.suits == suits
    assert reason in verdict.reason
    assert bool(verdict.reason) == bool(reason)
