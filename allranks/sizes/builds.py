"""Which sizes the library's images suit: the table of builds, read from ``builds.yaml``, which gives the reasons."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from allranks.catalogue import load_yaml
from allranks.sizes.table import VMSize

_FILE = Path(__file__).with_name("builds.yaml")

Capability = tuple[int, int]


@dataclass(frozen=True, slots=True)
class FrameworkBuild:
    """A framework as an image has it.

    Attributes:
        version: of the framework; ``compiled`` for what is compiled in the image.
        cuda: the CUDA that it was built with.
        machine_code: capabilities of the GPUs that it has code for; later ones of the same generation run it too.
        ptx: capabilities for which the driver has to compile it; later ones of the same generation likewise.
        driver: the oldest series of drivers that runs it.
        ptx_driver: the oldest that compiles the PTX; 0 without any.
        index: where its wheel comes from; empty for PyPI.
        cudnn: the version that is held; empty where the framework holds it itself.
        why: the reason in a few words; ``builds.yaml`` has the whole.
    """

    name: str
    version: str
    cuda: str
    machine_code: tuple[Capability, ...]
    ptx: tuple[Capability, ...]
    driver: int
    why: str
    ptx_driver: int = 0
    index: str = ""
    cudnn: str = ""

    @property
    def label(self) -> str:
        """The name and, unless the image compiles it, the version."""
        return self.name if self.version == "compiled" else f"{self.name} {self.version}"


@dataclass(frozen=True, slots=True)
class BuildTable:
    """The whole of ``builds.yaml``, which says what each key means; the capability of AMD's GPUs is None."""

    oldest_driver: int
    base: str
    base_cuda: str
    plain_base: str
    builds: Mapping[str, FrameworkBuild]
    images: Mapping[str, tuple[FrameworkBuild, ...]]
    capabilities: Mapping[str, Capability | None]
    arm_processors: frozenset[str]


class ImageVerdict(NamedTuple):
    """Whether an image suits a size, and why not, or what has to hold for it; no reason where it suits every node."""

    suits: bool
    reason: str = ""


@cache
def build_table() -> BuildTable:
    """The table."""
    document = load_yaml(_FILE.read_text(encoding="utf-8"))
    builds = {name: _build(name, facts) for name, facts in document["builds"].items()}
    images = {image: tuple(builds[name] for name in names) for image, names in document["images"].items()}
    capabilities = {gpu: _capability(text) for gpu, text in document["capabilities"].items()}
    read = {"builds": MappingProxyType(builds), "images": MappingProxyType(images)}
    read |= {"capabilities": MappingProxyType(capabilities)}
    return BuildTable(**{**document, **read, "arm_processors": frozenset(document["arm_processors"])})


def judge_image(image: str, size: VMSize) -> ImageVerdict:
    """Whether one of our images, such as ``pytorch``, suits a size; any suits a size without GPUs."""
    table = build_table()
    if not size.gpu:
        return ImageVerdict(suits=True)
    if size.gpu in table.arm_processors:
        return ImageVerdict(suits=False, reason="its processors are ARM's (Grace), and the images are for x86-64")
    capability = table.capabilities[size.gpu]
    if table.images[image] and capability is None:
        return ImageVerdict(suits=False, reason="its GPUs are AMD's, for which the images have no builds (ROCm)")
    notes = []
    for build in table.images[image]:
        assert capability is not None  # noqa: S101
        if runs_on(capability, build.machine_code):
            continue
        if not runs_on(capability, build.ptx):
            number = ".".join(map(str, capability))
            reason = f"{build.label} for CUDA {build.cuda} has no code for {size.gpu} (capability {number})"
            return ImageVerdict(suits=False, reason=reason)
        notes.append(f"{build.label} needs a driver of series {build.ptx_driver} or newer there")
    return ImageVerdict(suits=True, reason="; ".join(notes))


def runs_on(gpu: Capability, codes: Iterable[Capability]) -> bool:
    """Whether one of these codes is for a GPU of this generation, and for none that is newer."""
    return any(code[0] == gpu[0] and code <= gpu for code in codes)


def _build(name: str, facts: Mapping[str, Any]) -> FrameworkBuild:
    codes = {key: _capabilities(facts.get(key, ())) for key in ("machine_code", "ptx")}
    return FrameworkBuild(name=name, **{**facts, **codes})


def _capabilities(texts: Any) -> tuple[Capability, ...]:
    return tuple(found for text in texts if (found := _capability(text)) is not None)


def _capability(text: str) -> Capability | None:
    """``9.0`` as numbers: as texts 10.0 would come before 9.0."""
    major, _, minor = text.partition(".")
    return (int(major), int(minor)) if major else None
