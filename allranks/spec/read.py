"""Azure ML v2 YAML to ``model``: command components, pipeline components, pipeline jobs and command jobs.

Everything that is wrong with the form of a document (and of the components that it names) is found in one pass and
raised at once, together with what ``check_document`` finds in the parts that could be read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from allranks.errors import SpecError
from allranks.spec.check import check_document
from allranks.spec.document import read_yaml
from allranks.spec.model import Component, Pipeline, Source
from allranks.spec.reader import DocumentReader, FileResolver
from allranks.spec.section import Section


def read_spec(path: Path | str, resolve: FileResolver | None = None, *, to_run: bool = True) -> Component | Pipeline:
    """Read a component or a pipeline, whichever the file holds.

    Args:
        path: the YAML file.
        resolve: finds the file of a component that is named otherwise than by its path: a catalogue name or an
            ``azureml:`` id; without it such names are problems.
        to_run: whether what cannot run here is raised too. Otherwise a pipeline with such steps, and no mistake, is
            returned: these steps have a component without a name, and ``check_document`` lists why.

    Raises:
        SpecError: with all the problems of the file and of the component files that it names.
    """
    return _read(*read_yaml(path), resolve, to_run=to_run)


def read_component(path: Path | str) -> Component:
    """Read a command component, or a command job as one with its values as defaults; raises as ``read_spec``."""
    return component_from(*read_yaml(path))


def read_pipeline(path: Path | str, resolve: FileResolver | None = None) -> Pipeline:
    """Read a pipeline job or a pipeline component, with its steps' components; takes and raises as ``read_spec``."""
    return pipeline_from(*read_yaml(path), resolve)


def component_from(data: Mapping[str, Any], source: Source) -> Component:
    """Make a component from a document in memory, in the form of its YAML; see ``read_component``."""
    return cast("Component", _read(data, source, kind=Component))


def pipeline_from(data: Mapping[str, Any], source: Source, resolve: FileResolver | None = None) -> Pipeline:
    """Make a pipeline from a document in memory, in the form of its YAML; see ``read_pipeline``.

    Components may stand inline, also those of nested pipelines; relative paths start at ``source.base``.
    """
    return cast("Pipeline", _read(data, source, resolve, kind=Pipeline))


def _read(
    data: Mapping[str, Any],
    source: Source,
    resolve: FileResolver | None = None,
    *,
    kind: type[Component | Pipeline] | None = None,
    to_run: bool = True,
) -> Component | Pipeline:
    reader = DocumentReader(resolve)
    found = reader.document(Section(dict(data), source.prefix, source, list(source.problems)), kind)
    wrong = [problem for problem in reader.problems() if problem.severity != "warning"]
    if found is None or (wrong and (to_run or any(problem.severity == "error" for problem in wrong))):
        later = check_document(found) if found is not None else []
        problems = list(dict.fromkeys([*reader.problems(), *later]))
        warnings = [problem for problem in problems if problem.severity == "warning"]
        raise SpecError([problem for problem in problems if problem.severity != "warning"], warnings)
    return replace(found, source=replace(found.source, problems=(*wrong, *found.source.problems)))
