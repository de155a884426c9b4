"""What an environment asks for, as far as an interpreter of its own can give it: read from what its YAML says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from allranks.errors import Problem, SpecError
from allranks.local.environments.conda import CondaPart, read_conda_file, read_conda_part
from allranks.local.environments.dockerfile import DockerfilePart, read_dockerfile
from allranks.local.environments.known import known_environment
from allranks.spec.document import read_yaml
from allranks.spec.section import local_path


@dataclass(frozen=True, slots=True)
class EnvironmentRecipe:
    """What is installed, in this order, and what cannot be.

    Attributes:
        name: what people call it; the folder that it is built in begins so.
        python: ``3.11``; empty where nothing is said, and the version of the current interpreter is taken.
        conda: its conda packages as requirements of pip's.
        pip: further lines of a requirements file, paths absolute; they are installed second, as conda does.
        unmet: what pip cannot give, by name: conda packages that are no Python packages, steps of a Dockerfile.
        variables: environment variables that its processes have.
        document: the conda file that it was read from, for whoever has conda; None if there is none.
        folder: where commands are started, since ``-e .`` starts there.
        source: the environment's YAML, if it has one of its own.
    """

    name: str
    python: str = ""
    conda: tuple[str, ...] = ()
    pip: tuple[str, ...] = ()
    unmet: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    document: Mapping[str, Any] | None = None
    folder: Path = field(default_factory=Path.cwd)
    source: Path | None = None

    @property
    def packages(self) -> int:
        """How many packages it names."""
        return sum(not line.startswith("-") or line.startswith("-e") for line in (*self.conda, *self.pip))


def recipe_of(document: Mapping[str, Any], base_folder: Path) -> EnvironmentRecipe | None:
    """The recipe of an environment as its YAML, or what stands inline, says it; paths start from ``base_folder``.

    The keys are those of https://learn.microsoft.com/azure/machine-learning/reference-yaml-environment: an image, with
    a conda file, or a build context.

    Returns:
        The recipe; None where there is only an image and nothing is known of what it has.

    Raises:
        SpecError: a file that it names is not there, or does not say what it should.
    """
    image, name = str(document.get("image") or ""), str(document.get("name") or "")
    conda, build = document.get("conda_file"), document.get("build")
    if isinstance(build, Mapping):
        return _of_context(build, name, base_folder)
    if isinstance(conda, Mapping):
        return _of_conda(read_conda_part(conda, base_folder), name or str(conda.get("name") or "conda"))
    if conda:
        file = Path(local_path(str(conda), base_folder))
        part = read_conda_file(file)
        return _of_conda(part, name or str((part.document or {}).get("name") or file.stem))
    return known_recipe(image)


def known_recipe(reference: str) -> EnvironmentRecipe | None:
    """The recipe of one of Azure's own environments, by name, registry address or image; None if it is unknown."""
    known = known_environment(reference)
    if known is None:
        return None
    variables = MappingProxyType(dict(known.variables))
    return EnvironmentRecipe(known.name, known.python, known.conda, known.pip, variables=variables)


def read_recipe(file: Path) -> EnvironmentRecipe | None:
    """The recipe of an environment's YAML file; as ``recipe_of``, and SpecError if the file is none."""
    document, source = read_yaml(file)
    if not {"image", "conda_file", "build"} & document.keys():
        raise SpecError([Problem("is no environment: it has neither 'image' nor 'build'.", file=source.file)])
    recipe = recipe_of(document, source.base)
    if recipe is None:
        return None
    return replace(recipe, name=recipe.name if document.get("name") else file.stem, source=file)


def _of_conda(part: CondaPart, name: str) -> EnvironmentRecipe:
    return EnvironmentRecipe(
        name,
        part.python,
        part.conda,
        part.pip,
        part.unmet,
        MappingProxyType(dict(part.variables)),
        part.document,
        part.folder,
    )


def _of_context(build: Mapping[str, Any], name: str, base_folder: Path) -> EnvironmentRecipe | None:
    """What a Dockerfile installs over its image, where that or the image is known."""
    context = Path(local_path(str(build.get("path") or "."), base_folder))
    part: DockerfilePart = read_dockerfile(context, str(build.get("dockerfile_path") or "Dockerfile"))
    base = known_recipe(part.image)
    if base is None and not (part.conda or part.pip or part.python):
        return None
    base = base or EnvironmentRecipe("")
    return EnvironmentRecipe(
        name or context.name,
        part.python or base.python,
        (*base.conda, *part.conda),
        (*base.pip, *part.pip),
        part.unmet,
        MappingProxyType({**base.variables, **part.variables}),
        folder=context,
    )
