"""Lint finds what the SDK finds, over documents with one mistake each; and calls nothing an error that the SDK takes.

Where the two differ the reason stands in a table. ``STRIDES`` says how many of the mistakes are tried here: with 1 for
all there are 4,000, which take half an hour; what is left out differs from what is tried by place or value alone.
"""

from __future__ import annotations

import functools
import logging
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("azure.ai.ml")

from allranks.errors import Problem
from tests.spec.mutations import DOCUMENTS, LIBRARY, Mutation, link_library, mutations_of, sound_document, write_files

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # of marshmallow, about the SDK

# A pipeline takes the SDK ten times as long as a component.
STRIDES = {"prepare.yaml": 5, "train.yaml": 7, "job.yaml": 7, "sweep.yaml": 7}
PIPELINE_STRIDE = 61
OF_THE_LIBRARY = 2  # of each of its documents, which have hundreds of keys that differ in name alone
TRIED = 2  # without --exhaustive one of so many of these
LEAST = 430

ONLY_THE_SDK = {
    r"^resources\.instance_count: one level too high": "an argument of the SDK's class, which no schema has as a key",
}
ONLY_LINT = {
    r"is not an? (integer|number|boolean)": "a value of another type is refused by the service, or by the script",
    r"is (below the minimum|above the maximum|not above 0)|is above max|is not from 1 to 99": "numbers out of range",
    r"is no size: a whole number": "a size that no machine takes",
    r"is not a (finite )?(whole )?number": "the SDK cuts 2.5 down to 2, and takes any text as the base of a logarithm",
    r"the (pipeline|pipeline component|trial|search space) has no|there is no (input|output|step) '": "no such name",
    r"means nothing in a|is no place for an output": "an expression that names nothing",
    r"there is no file or folder '": "data that is not there, which the SDK misses when it uploads",
    r"has no steps|has no command|has no 'path'|is not a path|states no type|search_space.*is empty": "what is needed",
    r"has no task|has no entry_script|has an entry_script and no code": "what is needed",
    r"names no (input|output)": "an expression that names nothing",
    r"is none of the types of a service": "without keys of a type the SDK sends any, and no endpoint comes of it",
    r"only files and tables can be divided": "a literal for data",
    r"is a folder, and the input takes a uri_file": "a path that was left empty",
    r"states no (sampling_algorithm|type)|states neither slack|is none of the rules": "what a sweep needs",
    r"has neither 'image' nor 'build'": "an environment of nothing",
    r"takes an? \w+, and the pipeline's input": "data for a literal, or a literal for data",
    r"the required input": "an input without a value",
    r"is a (mapping|list|number|boolean), and should be a text": "a version, variable or step's display name of no text",
    r"is not the type of a document with 'jobs'": "PIPELINE, which the SDK takes from a component and not from a job",
    r"is a [\w ]+ on a step of type 'command'": "a step without a type becomes a command for the SDK",
    r"is not one of .* It is the pipeline's input": "a default that the component which it is bound to does not take",
    r"is not 'all', the only choice": "the SDK looks at a service's nodes for some types only",
}


def sdk_faults(file: Path) -> list[str]:
    """What the SDK says of a document when it loads, validates and converts it; nothing is sent anywhere."""
    from azure.ai.ml import load_component, load_job
    from azure.ai.ml.entities import Component, PipelineJob

    load = load_component if "Component.schema" in file.read_text() else load_job
    found = []
    try:
        entity = load(file)
        if hasattr(entity, "_validate"):
            found += map(str, entity._validate().error_messages.items())
        if isinstance(entity, PipelineJob):
            parts = [getattr(node, "_component", None) for node in entity.jobs.values()]
            for part in parts:
                found += map(str, part._validate().error_messages.items()) if isinstance(part, Component) else ()
        if not found:
            entity._to_rest_object()
    except Exception as error:  # noqa: BLE001  # the SDK raises what it likes
        found.append(f"{type(error).__name__}: {error}")
    return found


def lint_faults(file: Path) -> list[Problem]:
    from allranks.cli.lint import _problems_of
    from allranks.local.assets import CloudStandIns

    return [one for one in _problems_of(str(file), CloudStandIns(), designer=False) if one.severity == "error"]


@functools.cache
def chosen(document: str) -> list[Mutation]:
    made = list(mutations_of(document, sound_document(document)))
    if document in LIBRARY:
        start = LIBRARY.index(document)  # so that each document has other mistakes than the next
        return made[start :: len(made) // OF_THE_LIBRARY]
    return made[:: STRIDES.get(document, PIPELINE_STRIDE)]


def _written(document: str, folder: Path) -> Path:
    """The sound document where what it names is found, and where its mistakes are written in turn."""
    if document in LIBRARY:
        link_library(folder)
        place = "components/changed/component.yaml" if document.startswith("components") else "pipelines/changed.yaml"
    else:
        write_files(folder)
        place = "changed.yaml"
    file = folder / place
    file.parent.mkdir(exist_ok=True)
    file.write_text(yaml.safe_dump(sound_document(document), sort_keys=False))
    return file


@pytest.fixture(autouse=True)
def quiet() -> Any:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_there_are_enough_mistakes() -> None:
    assert sum(len(chosen(document)) for document in (*DOCUMENTS, *LIBRARY)) >= LEAST


@pytest.mark.parametrize("document", [*DOCUMENTS, *LIBRARY])
def test_lint_and_the_sdk_agree(document: str, tmp_path: Path, exhaustive: bool) -> None:
    file = _written(document, tmp_path)
    assert (sdk_faults(file), lint_faults(file)) == ([], []), "it is sound"
    missed, refused = [], []
    for mutation in chosen(document)[:: 1 if exhaustive else TRIED]:
        file.write_text(yaml.dump(mutation.data, Dumper=yaml.CSafeDumper, sort_keys=False))
        theirs, ours = sdk_faults(file), lint_faults(file)
        if theirs and not ours and not any(re.search(pattern, mutation.name) for pattern in ONLY_THE_SDK):
            missed.append((mutation.name, theirs[0]))
        if not theirs:
            refused += [(mutation.name, str(one)) for one in ours if not any(re.search(p, str(one)) for p in ONLY_LINT)]
    assert missed == [], "only the SDK finds these"
    assert refused == [], "lint calls these errors, and the SDK takes them"
