"""Two readers, one meaning: what the SDK makes of a YAML, read from its entities, is what we read from the text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from azure.ai.ml import load_job
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

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


@pytest.mark.parametrize("name", sorted(catalogue.pipeline_files()))
def test_every_pipeline_of_the_library(name):
    file = catalogue.pipeline_files()[name]
    assert meaning(through_the_sdk(file)) == meaning(read_pipeline(file, catalogue.resolve))


NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,6}", fullmatch=True)
LITERALS = st.one_of(
    st.integers(-999, 999), st.sampled_from([0.5, 1e-3, 20.0]), st.sampled_from(["text", "a b", "x-1"])
)


@st.composite
def pipelines(draw: Any) -> dict[str, Any]:
    """A pipeline job of one to three inline commands in a chain, some with ranks, all with literals and bindings."""
    shared = draw(st.dictionaries(NAMES, LITERALS, min_size=1, max_size=3))
    jobs: dict[str, Any] = {}
    for number in range(draw(st.integers(1, 3))):
        own = draw(st.dictionaries(NAMES, LITERALS, max_size=2))
        bound = {key: f"${{{{parent.inputs.{key}}}}}" for key in shared}
        inputs: dict[str, Any] = {**own, **bound}
        if number:
            inputs["before"] = f"${{{{parent.jobs.step{number - 1}.outputs.out}}}}"
        job: dict[str, Any] = {
            "type": "command",
            "command": "echo " + " ".join(f"'${{{{inputs.{key}}}}}'" for key in inputs) + " > ${{outputs.out}}/f",
            "environment": "azureml:some:1",
            "inputs": inputs,
            "outputs": {"out": {"type": "uri_folder"}},
        }
        kind = draw(st.sampled_from(["none", "pytorch", "mpi"]))
        if kind != "none":
            job["distribution"] = {"type": kind, "process_count_per_instance": draw(st.integers(1, 8))}
            job["resources"] = {"instance_count": draw(st.integers(1, 4))}
        if draw(st.booleans()):
            job["environment_variables"] = {"MODE": draw(st.sampled_from(["a", "b c", "1"]))}
        if draw(st.booleans()):
            job["limits"] = {"timeout": draw(st.integers(1, 9999))}
        jobs[f"step{number}"] = job
    return {"type": "pipeline", "inputs": shared, "jobs": jobs}


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pipelines())
def test_a_generated_family(tmp_path, document):
    file = tmp_path / "pipeline.yaml"
    file.write_text(yaml.safe_dump(document))
    assert meaning(through_the_sdk(file)) == meaning(read_pipeline(file, catalogue.resolve))
