"""The image of a step: pulled as it is named, or built here once from its Dockerfile or conda file.

What is built is tagged ``allranks/<name>:<key>``, the key made of the contents of all that the build reads, so a second
run finds it; the client's own cache of layers makes a build after a small change short.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from allranks.errors import Problem, SpecError
from allranks.files import write_text
from allranks.local.containers.client import ContainerClient
from allranks.local.environments.building import awaited_builder, guarded_commands, run_command
from allranks.local.environments.known import known_image
from allranks.local.ignore import is_runs_folder
from allranks.local.private_files import make_private_folder
from allranks.spec.document import read_yaml
from allranks.spec.section import local_path

IMAGE_MARK = "allranks.image"  # the label of all that is built here

# What Azure ML's own builds do: the environment where AZUREML_CONDA_ENVIRONMENT_PATH says, in front of PATH.
_CONDA_DOCKERFILE = """FROM {image}
USER root
WORKDIR /azureml-environment-setup
COPY conda.yaml ./
RUN tool=$(command -v conda || command -v mamba || command -v micromamba) && test -n "$tool" || \\
    {{ echo "error: the image has no conda, which a conda_file needs on Azure ML too"; exit 1; }}; \\
    case "$tool" in *micromamba) "$tool" create --yes --prefix {prefix} --file conda.yaml ;; \\
    *) "$tool" env create --prefix {prefix} --file conda.yaml ;; esac
ENV AZUREML_CONDA_ENVIRONMENT_PATH={prefix} CONDA_PREFIX={prefix} PATH={prefix}/bin:$PATH \\
    LD_LIBRARY_PATH={prefix}/lib:$LD_LIBRARY_PATH
"""


@dataclass(frozen=True, slots=True)
class ContainerImage:
    """An image, there or not.

    Attributes:
        reference: what a container is started from.
        client: whose image it is.
        home: the folder ``.allranks``, where logs of builds lie.
        context: the folder that it is built from; None for one that is pulled, and with ``files`` made for the build.
        dockerfile: its name in the context.
        files: of a context that is written for the build, by name.
        variables: of the conda file, for its processes.
    """

    reference: str
    client: ContainerClient
    home: Path
    context: Path | None = None
    dockerfile: str = "Dockerfile"
    files: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_built(self) -> bool:
        """Whether it is there."""
        return bool(self.client.image_id(self.reference))

    @property
    def identity(self) -> str:
        """What decides what is in it; the name of one that is not there yet."""
        is_made = self.context is not None or self.files
        return self.reference if is_made else self.client.image_id(self.reference) or self.reference

    def build(self, tell: Callable[[str], None]) -> None:
        """Build or pull it; minutes, most of which are downloads. ``tell`` is called with what is being done.

        Raises:
            CannotRunHereError: the client could not; the message has its last line, and the name of the log.
        """
        folder = self.home.absolute() / "images" / re.sub(r"[^\w.-]+", "-", self.reference)
        for private in (self.home.absolute(), folder.parent, folder):
            make_private_folder(private)
        with awaited_builder(folder, tell), guarded_commands(folder) as variables:
            if self.is_built:
                return  # somebody has built it while we waited
            for name, text in self.files.items():
                write_text(folder / name, text, follow_links=False)
            command, what = self._command(self.context or folder)
            tell(what)
            with folder.with_name(f"{folder.name}.log").open("w", encoding="utf-8") as log:
                run_command(command, variables, log, f"{self.reference}: {what}")

    def _command(self, context: Path) -> tuple[list[str], str]:
        if self.context is None and not self.files:
            return [self.client.program, "pull", self.reference], "pull"
        options = ["--tag", self.reference, "--label", IMAGE_MARK, "--file", str(context / self.dockerfile)]
        return [self.client.program, "build", *options, str(context)], "build"


def image_of_file(file: Path, client: ContainerClient, home: Path) -> ContainerImage:
    """The image of an environment's YAML; raises SpecError as ``image_of_document``."""
    document, source = read_yaml(file)
    if not {"image", "build"} & document.keys():
        message = "is no environment for a container: it has neither 'image' nor 'build'."
        raise SpecError([Problem(message, file=source.file)])
    image = image_of_document({"name": file.parent.name, **document}, source.base, client, home)
    assert image is not None  # noqa: S101 it has an image or a context
    return image


def image_of_document(
    document: Mapping[str, Any], base_folder: Path, client: ContainerClient, home: Path
) -> ContainerImage | None:
    """The image of an environment as its YAML, or what stands inline, says it; paths start from ``base_folder``.

    Returns:
        The image; None where neither an image nor a context is named.

    Raises:
        SpecError: a file that it names is not there, or is no YAML.
    """
    build, image, conda = document.get("build"), str(document.get("image") or ""), document.get("conda_file")
    name = re.sub(r"[^a-z0-9]+", "-", str(document.get("name") or "").lower()).strip("-") or "environment"
    if isinstance(build, Mapping):
        context = Path(local_path(str(build.get("path") or "."), base_folder))
        dockerfile = str(build.get("dockerfile_path") or "Dockerfile")
        if not (context / dockerfile).is_file():
            raise SpecError([Problem(f"build: there is no {context / dockerfile}.")])
        key = _context_digest(context, dockerfile)
        return ContainerImage(f"allranks/{name}:{key}", client, home, context, dockerfile)
    if not image:
        return None
    if not conda:
        return ContainerImage(image, client, home)
    listed = conda if isinstance(conda, Mapping) else read_yaml(Path(local_path(str(conda), base_folder)))[0]
    return _conda_image(name, image, dict(listed), client, home)


def curated_image(reference: str, client: ContainerClient, home: Path) -> ContainerImage | None:
    """The image of one of Azure's environments, by its name or address; None if it is not known."""
    image = known_image(reference)
    return None if image is None else ContainerImage(image, client, home)


def _conda_image(name: str, image: str, listed: dict[str, Any], client: ContainerClient, home: Path) -> ContainerImage:
    variables = {str(key): str(value) for key, value in (listed.get("variables") or {}).items()}
    text = yaml.safe_dump(listed, sort_keys=False)
    dockerfile = _CONDA_DOCKERFILE.format(image=image, prefix=f"/azureml-envs/{name}")
    key = _digest([dockerfile, text])
    files = {"Dockerfile": dockerfile, "conda.yaml": text}
    return ContainerImage(f"allranks/{name}:{key}", client, home, files=files, variables=variables)


@cache
def _context_digest(context: Path, dockerfile: str) -> str:
    """By the contents of the files, wherever the folder lies and whenever they were written."""
    found: list[object] = [dockerfile]
    for folder, folders, names in os.walk(context):
        folders[:] = sorted(one for one in folders if one != ".git" and not is_runs_folder(os.path.join(folder, one)))  # noqa: PTH118
        for path in (Path(folder, name) for name in sorted(names)):
            if path.is_file():
                with path.open("rb") as file:
                    found.append([str(path.relative_to(context)), hashlib.file_digest(file, "sha256").hexdigest()])
    return _digest(found)


def _digest(decides: object) -> str:
    return hashlib.sha256(json.dumps(decides).encode()).hexdigest()[:12]
