"""The key lists are those of the SDK that is installed."""

from __future__ import annotations

import pytest

from allranks.spec import schema
from allranks.spec.distribution import DISTRIBUTION_KINDS

pytest.importorskip("azure.ai.ml")
pytestmark = pytest.mark.filterwarnings("ignore")  # of marshmallow, about the SDK

COMMAND_COMPONENT = "azure.ai.ml._schema.component.command_component.CommandComponentSchema"
PIPELINE_COMPONENT = "azure.ai.ml._schema.pipeline.pipeline_component.PipelineComponentSchema"
PARALLEL_COMPONENT = "azure.ai.ml._schema.component.parallel_component.ParallelComponentSchema"
PARALLEL = "azure.ai.ml._schema.pipeline.pipeline_parallel_job"
STEP = "azure.ai.ml._schema.pipeline.component_job"
IO = "azure.ai.ml._schema.component.input_output"


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        (COMMAND_COMPONENT, schema.COMMAND_COMPONENT),
        (PIPELINE_COMPONENT, schema.PIPELINE_KEYS),
        ("azure.ai.ml._schema.pipeline.pipeline_job.PipelineJobSchema", schema.PIPELINE_KEYS),
        (f"{STEP}.CommandSchema", schema.COMPONENT_STEP),
        (f"{STEP}.SweepSchema", schema.SWEEP_STEP),
        (f"{STEP}.ParallelSchema", schema.PARALLEL_STEP),
        (PARALLEL_COMPONENT, schema.PARALLEL_COMPONENT),
        (f"{PARALLEL}.PipelineParallelJobSchema", schema.PARALLEL_STEP | {"environment"}),  # it has no effect there
        ("azure.ai.ml._schema.component.parallel_task.ComponentParallelTaskSchema", schema.PARALLEL_TASK),
        ("azure.ai.ml._schema.pipeline.pipeline_component.PipelineSchema", schema.PIPELINE_STEP),
        ("azure.ai.ml._schema.pipeline.pipeline_command_job.PipelineCommandJobSchema", schema.INLINE_STEP),
        ("azure.ai.ml._schema.job.command_job.CommandJobSchema", schema.COMMAND_JOB),
        (f"{IO}.ParameterSchema", schema.INPUT_KEYS),
        (f"{IO}.InputPortSchema", schema.INPUT_KEYS),
        (f"{IO}.OutputPortSchema", schema.OUTPUT_KEYS),
        ("azure.ai.ml._schema.job.input_output_entry.DataInputSchema", schema.VALUE_KEYS),
        ("azure.ai.ml._schema.job.input_output_entry.OutputSchema", schema.OUTPUT_KEYS | {"$schema"}),
        ("azure.ai.ml._schema.component.resource.ComponentResourceSchema", schema.RESOURCE_KEYS),
        (
            "azure.ai.ml._schema.job.distribution.PyTorchDistributionSchema",
            {"type", *DISTRIBUTION_KINDS["pytorch"].keys},
        ),
        ("azure.ai.ml._schema.job.distribution.MPIDistributionSchema", {"type", *DISTRIBUTION_KINDS["mpi"].keys}),
        (
            "azure.ai.ml._schema.job.distribution.TensorFlowDistributionSchema",
            {"type", *DISTRIBUTION_KINDS["tensorflow"].keys},
        ),
        ("azure.ai.ml._schema.job.job_limits.SweepJobLimitsSchema", schema.SWEEP_LIMITS),
        ("azure.ai.ml._schema.pipeline.settings.PipelineJobSettingsSchema", schema.SETTINGS_KEYS),
        ("azure.ai.ml._schema.assets.environment.AnonymousEnvironmentSchema", schema.ENVIRONMENT_KEYS),
    ],
)
def test_no_key_of_the_sdk_is_unknown_here(name, keys):
    module, _, class_ = name.rpartition(".")
    found = getattr(__import__(module, fromlist=[class_]), class_)(context={"base_path": "."})
    assert {field.data_key or key for key, field in found.fields.items()} - {"intellectual_property"} <= keys


def test_modes_and_types():
    from azure.ai.ml._schema.component import input_output

    from allranks.spec.model import DATA_TYPES, LITERAL_TYPES

    assert set(input_output.SUPPORTED_INPUT_OUTPUT_MODES) == schema.PORT_MODES
    assert set(input_output.SUPPORTED_PORT_TYPES) == set(DATA_TYPES)
    assert set(input_output.SUPPORTED_PARAM_TYPES) == set(LITERAL_TYPES)
