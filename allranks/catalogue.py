"""The library's components, pipelines and environments by name.

The names are written down rather than discovered: what ships is decided in one place, and a test holds the lists
against the folders.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from allranks import library

COMPONENTS = (
    "prepare_data",
    "prepare_text",
    "train_ddp",
    "train_torchrun",
    "train_fsdp",
    "train_deepspeed",
    "train_lightning",
    "train_transformers",
    "train_horovod",
    "train_horovod_keras",
    "train_tf_multiworker",
    "train_tf_parameter_server",
    "evaluate",
    "compare_models",
    "check_cluster",
)
PIPELINES = (
    "image_classification",
    "image_classification_torchrun",
    "language_model",
    "finetune_text",
    "compare_frameworks",
    "tune_image_classification",
)
ENVIRONMENTS = ("pytorch", "deepspeed", "lightning", "transformers", "horovod", "tensorflow", "evaluate", "compare")

_ASSET = re.compile(r"(?:azureml:)?(?P<name>[A-Za-z][\w-]*)(?:[:@](?P<version>[\w.-]+))?")
_REGISTRY = re.compile(r"azureml://registries/[^/]+/(?:components|environments)/(?P<name>[^/]+)/\w+/(?P<version>[^/]+)")
_SHOWN = re.compile(r"^(?:display_name|version|description|distribution):.*\n(?:\W.*\n|\n)*", re.MULTILINE)
"""Top-level keys of our YAML with their values: to parse the inputs, too, took a quarter of the time of a list."""


@cache
def component_files() -> Mapping[str, Path]:
    """The ``component.yaml`` of every component, by name."""
    return MappingProxyType({name: library.root() / "components" / name / "component.yaml" for name in COMPONENTS})


@cache
def pipeline_files() -> Mapping[str, Path]:
    """The exported YAML of every pipeline, by name."""
    return MappingProxyType({name: library.root() / "pipelines" / f"{name}.yaml" for name in PIPELINES})


@cache
def environment_files() -> Mapping[str, Path]:
    """The ``environment.yaml`` of every environment, by the name of its folder."""
    root = library.root() / "environments"
    return MappingProxyType({name: root / name / "environment.yaml" for name in ENVIRONMENTS})


def resolve(reference: str) -> Path | None:
    """The YAML of a component or pipeline of ours; None for what is not ours.

    Args:
        reference: a bare name, ``azureml:NAME``, ``azureml:NAME:VERSION``, ``azureml:NAME@LABEL`` or a registry's
            address. A version has to be the library's own: another one may mean other code.
    """
    name = _our_name(reference)
    return None if name is None else (component_files().get(name) or pipeline_files().get(name))


def environment_of(reference: str) -> str | None:
    """The folder name of an environment of ours (``pytorch`` for ``azureml:allranks-pytorch:0.1.0``), or None."""
    name = (_our_name(reference) or "").removeprefix("allranks-")
    return name if f"allranks-{name}" in reference and name in ENVIRONMENTS else None


def _our_name(reference: str) -> str | None:
    """The name in a reference, when it asks for no version, for a label, or for the library's version."""
    match = _ASSET.fullmatch(reference) or _REGISTRY.fullmatch(reference)
    if match is None or match["version"] not in (None, "latest", "default", library.VERSION):
        return None
    return match["name"]


class CatalogueEntry(NamedTuple):
    """What a list shows of a component, a pipeline or an environment, with the first sentence of its description.

    The distribution of a component without one is ``none``; it is empty for what is no component.
    """

    kind: str
    name: str
    display_name: str
    version: str
    distribution: str
    description: str
    path: Path


def catalogue_entries() -> list[CatalogueEntry]:
    """Everything in the library: components, pipelines, environments, each in the catalogue's order.

    Only the few keys that a list shows are parsed; ``allranks.spec`` reads and checks whole documents.
    """
    kinds = {"component": component_files(), "pipeline": pipeline_files(), "environment": environment_files()}
    return [_entry(kind, name, path) for kind, paths in kinds.items() for name, path in paths.items()]


def _entry(kind: str, name: str, path: Path) -> CatalogueEntry:
    document = load_yaml("".join(_SHOWN.findall(path.read_text(encoding="utf-8"))))
    return CatalogueEntry(
        kind=kind,
        name=name,
        display_name=document.get("display_name", ""),
        version=str(document.get("version", "")),
        distribution=(document.get("distribution") or {}).get("type", "none") if kind == "component" else "",
        description=first_sentence(document.get("description", "")),
        path=path,
    )


def first_sentence(text: str) -> str:
    """The first sentence of a description, on one line."""
    return re.split(r"(?<=[.!?])\s", " ".join(text.split()), maxsplit=1)[0]


def load_yaml(text: str) -> Any:
    """The data of YAML of the library's own, which is not checked; what users write is read by ``spec.document``."""
    import yaml

    return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 both are safe
