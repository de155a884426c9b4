"""Two readers, one meaning: what the SDK makes of a YAML, read from its entities, is what we read from the text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from azure.ai.ml import load_job

from allranks import catalogue
from allranks.azure.document import job_document
from allranks.spec import Data, Pipeline, Source, pipeline_from, read_pipeline

ROOT = Path(__file__).parents[2]


def through_the_sdk(file: Path) -> Pipeline:
    job = load_job(file)
    return pipeline_from(job_document(job), Source(None, file.parent), catalogue.resolve)


def meaning(pipeline: Pipeline) -> dict[str, Any]:
    """What matters for a run: each step's command, values, distribution, counts and variables."""
    return {
        name: {
            "command": "" if isinstance(step.component, Pipeline) else " ".join(step.component.command.split()),
            "inside": meaning(step.component) if isinstance(step.component, Pipeline) else None,
            "inputs": {
                key: value.path if isinstance(value, Data) else str(value) for key, value in step.inputs.items()
            },
            "distribution": None if isinstance(step.component, Pipeline) else launch(step),
            "variables": dict(step.environment_variables),
            "timeout": None if step.timeout is None else float(step.timeout),
        }
        for name, step in pipeline.steps.items()
    }


def launch(step: Any) -> list[str]:
    distribution = step.distribution or step.component.distribution
    nodes = step.resources.nodes or step.component.resources.nodes or 1
    kind = distribution.type if distribution else "none"
    processes = distribution.processes_per_node if distribution and distribution.type != "tensorflow" else None
    return [kind, str(processes or 1), str(nodes)]


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(catalogue.pipeline_files()))
def test_every_pipeline_of_the_library(name):
    file = catalogue.pipeline_files()[name]
    assert meaning(through_the_sdk(file)) == meaning(read_pipeline(file, catalogue.resolve))
