"""The key lists are those of the SDK that is installed."""

from __future__ import annotations

import pytest

from allranks.spec import schema
from allranks.spec.distribution import DISTRIBUTION_KINDS
from allranks.spec.value_kinds import VALUE_KINDS, find_misfits

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
        ("azure.ai.ml._schema.pipeline.pipeline_job.PipelineJobSchema", schema.PIPELINE_JOB),
        (f"{STEP}.CommandSchema", schema.COMPONENT_STEP),
        (f"{STEP}.SweepSchema", schema.SWEEP_STEP),
        (f"{STEP}.ParallelSchema", schema.PARALLEL_STEP),
        (PARALLEL_COMPONENT, schema.PARALLEL_COMPONENT),
        (f"{PARALLEL}.PipelineParallelJobSchema", schema.PARALLEL_STEP | {"environment"}),  # it has no effect there
        ("azure.ai.ml._schema.component.parallel_task.ComponentParallelTaskSchema", schema.PARALLEL_TASK),
        ("azure.ai.ml._schema.pipeline.pipeline_component.PipelineSchema", schema.PIPELINE_STEP),
        ("azure.ai.ml._schema.pipeline.pipeline_command_job.PipelineCommandJobSchema", schema.INLINE_STEP),
        ("azure.ai.ml._schema.job.command_job.CommandJobSchema", schema.COMMAND_JOB),
        ("azure.ai.ml._schema._sweep.sweep_job.SweepJobSchema", schema.SWEEP_JOB),
        ("azure.ai.ml._schema.job.parameterized_command.ParameterizedCommandSchema", schema.TRIAL),
        ("azure.ai.ml._schema.queue_settings.QueueSettingsSchema", schema.QUEUE_KEYS),
        (f"{IO}.ParameterSchema", schema.INPUT_KEYS),
        (f"{IO}.InputPortSchema", schema.INPUT_KEYS),
        (f"{IO}.OutputPortSchema", schema.DECLARED_OUTPUT_KEYS),
        ("azure.ai.ml._schema.job.input_output_entry.DataInputSchema", schema.VALUE_KEYS),
        ("azure.ai.ml._schema.job.input_output_entry.OutputSchema", schema.GIVEN_OUTPUT_KEYS),
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


IDENTITY = "azure.ai.ml._schema.job.identity"


@pytest.mark.parametrize(
    ("class_", "type_"),
    [
        ("ManagedIdentitySchema", "managed"),
        ("ManagedIdentitySchema", "managed_identity"),
        ("UserIdentitySchema", "user_identity"),
        ("AMLTokenIdentitySchema", "aml_token"),
    ],
)
def test_identities(class_, type_):
    found = schema_of(f"{IDENTITY}.{class_}")
    assert {*found.fields} == {*schema.IDENTITY_KEYS[type_]}
    assert type_ in found.fields["type"].allowed_values


def test_modes_of_what_is_given():
    entries = "azure.ai.ml._schema.job.input_output_entry"
    modes = {name: {*schema_of(f"{entries}.{name}").fields["mode"].allowed_values} for name in GIVEN}
    assert modes == GIVEN


GIVEN = {
    "DataInputSchema": schema.GIVEN_INPUT_MODES,
    "ModelInputSchema": schema.GIVEN_INPUT_MODES,
    "MLTableInputSchema": schema.TABLE_MODES,
    "OutputSchema": schema.GIVEN_OUTPUT_MODES,
}


def test_services():
    services = "azure.ai.ml._schema.job.services"
    (types, _) = schema_of(f"{services}.JobServiceSchema").fields["type"].union_fields
    assert {*types.allowed_values} == schema.SERVICE_TYPES
    for name in ("JobServiceSchema", "SshJobServiceSchema", "TensorBoardJobServiceSchema"):
        assert {field.data_key or key for key, field in schema_of(f"{services}.{name}").fields.items()} <= (
            schema.SERVICE_KEYS | {"$schema"}
        )


OF_KINDS = [
    COMMAND_COMPONENT,
    PIPELINE_COMPONENT,
    "azure.ai.ml._schema.pipeline.pipeline_job.PipelineJobSchema",
    "azure.ai.ml._schema.pipeline.pipeline_command_job.PipelineCommandJobSchema",
    "azure.ai.ml._schema.job.command_job.CommandJobSchema",
    "azure.ai.ml._schema._sweep.sweep_job.SweepJobSchema",
    "azure.ai.ml._schema._sweep.sweep_objective.SweepObjectiveSchema",
    "azure.ai.ml._schema.component.resource.ComponentResourceSchema",
    "azure.ai.ml._schema.pipeline.settings.PipelineJobSettingsSchema",
    "azure.ai.ml._schema.assets.environment.AnonymousEnvironmentSchema",
    "azure.ai.ml._schema.assets.environment.BuildContextSchema",
    "azure.ai.ml._schema.queue_settings.QueueSettingsSchema",
    f"{IO}.ParameterSchema",
    f"{IO}.InputPortSchema",
    f"{IO}.OutputPortSchema",
    "azure.ai.ml._schema.job.input_output_entry.DataInputSchema",
    "azure.ai.ml._schema.job.input_output_entry.OutputSchema",
    "azure.ai.ml._schema.job.services.SshJobServiceSchema",
    "azure.ai.ml._schema.job.services.TensorBoardJobServiceSchema",
    f"{IDENTITY}.ManagedIdentitySchema",
]
VALUES = ("x", 5, True, 2.5, ["x"], {"a": "b"}, "low", "linux", None)
NOT_COMPARED = {  # keys that the SDK looks at more closely than for their kind, as their readers do here
    ("PipelineJobSchema", "compute"),
    ("PipelineCommandJobSchema", "compute"),
    ("CommandJobSchema", "compute"),
    ("SweepJobSchema", "compute"),
    ("PipelineJobSettingsSchema", "default_compute"),
    ("PipelineJobSettingsSchema", "default_datastore"),
    ("BuildContextSchema", "path"),
    ("SweepObjectiveSchema", "goal"),
}


@pytest.mark.parametrize("name", OF_KINDS, ids=[name.rpartition(".")[2] for name in OF_KINDS])
def test_a_key_takes_the_values_that_the_sdk_takes(name):
    found_schema = schema_of(name)
    compared = 0
    for key, field in found_schema.fields.items():
        if key not in VALUE_KINDS or field.dump_only or (type(found_schema).__name__, key) in NOT_COMPARED:
            continue
        compared += 1
        for value in VALUES:
            found = [*find_misfits({key: value})]
            assert bool(found) == (not taken(field, value)), f"{key}: {value!r} {found}"
    assert compared or name.endswith("SettingsSchema"), "the table has none of its keys"


def taken(field, value):
    from marshmallow import ValidationError

    try:
        field.deserialize(value)
    except ValidationError:
        return False
    return True


def schema_of(name):
    module, _, class_ = name.rpartition(".")
    return getattr(__import__(module, fromlist=[class_]), class_)(context={"base_path": "."})
