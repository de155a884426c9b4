"""Which keys, names and types Azure ML's YAML knows.

The lists are those of the schemas in azure-ai-ml 1.35.2 (``azure/ai/ml/_schema``): CommandComponentSchema,
PipelineComponentSchema, PipelineJobSchema, CommandSchema, SweepSchema, PipelineSchema, CommandJobSchema,
PipelineParallelJobSchema, ParallelComponentSchema, ComponentParallelTaskSchema,
ParameterSchema, InputPortSchema, OutputSchema and the classes of resources, distribution and limits.
"""

from __future__ import annotations

import re

JOB, COMPONENT, EITHER = "job", "component", ""
"""What a document is, where its ``$schema`` or its type says so; a pipeline without ``$schema`` may be either."""

_ANY = frozenset({"$schema", "name", "id", "type", "display_name", "description", "tags", "properties"})
_ANY |= {"creation_context"}
ASSET_KEYS = _ANY | {"version", "latest_version", "auto_delete_setting", "is_deterministic", "inputs", "outputs"}
ASSET_KEYS |= {"intellectual_property"}
COMMAND_KEYS = frozenset({"command", "code", "environment", "resources", "distribution", "queue_settings"})
JOB_KEYS = _ANY | {"services", "status", "experiment_name", "log_files", "compute", "identity", "inputs", "outputs"}

COMMAND_COMPONENT = ASSET_KEYS | COMMAND_KEYS | {"additional_includes"}
COMMAND_JOB = JOB_KEYS | COMMAND_KEYS | {"environment_variables", "limits", "parameters", "parent_job_name"}
PIPELINE_JOB = JOB_KEYS | {"jobs", "settings", "component"}
PIPELINE_KEYS = ASSET_KEYS | PIPELINE_JOB

NODE_KEYS = frozenset({"$schema", "type", "inputs", "outputs", "properties", "comment"})
STEP_TEXTS = frozenset({"name", "display_name", "description", "tags"})
COMPONENT_STEP = NODE_KEYS | STEP_TEXTS | COMMAND_KEYS
COMPONENT_STEP |= {"component", "environment_variables", "compute", "limits", "services", "identity"}
SWEEP_STEP = NODE_KEYS | STEP_TEXTS | {"trial", "sampling_algorithm", "search_space", "objective", "early_termination"}
SWEEP_JOB = SWEEP_STEP | JOB_KEYS | {"limits", "resources", "queue_settings"}
TRIAL = COMMAND_KEYS | {"$schema", "environment_variables"}
SWEEP_STEP |= {"limits", "compute", "queue_settings", "resources", "identity"}
PARALLEL_KEYS = frozenset(
    {"task", "input_data", "mini_batch_size", "partition_keys", "error_threshold", "mini_batch_error_threshold"}
    | {"max_concurrency_per_instance", "retry_settings", "logging_level", "resources"}
)
PARALLEL_STEP = NODE_KEYS | STEP_TEXTS | PARALLEL_KEYS | {"component", "environment_variables", "compute", "identity"}
PARALLEL_COMPONENT = ASSET_KEYS | PARALLEL_KEYS
PARALLEL_TASK = frozenset(
    {"type", "code", "entry_script", "program_arguments", "model", "append_row_to", "environment"}
)
PIPELINE_STEP = NODE_KEYS | STEP_TEXTS | {"component", "settings"}
IF_ELSE_STEP = frozenset({"$schema", "type", "condition", "true_block", "false_block"})
INLINE_STEP = COMMAND_JOB | NODE_KEYS - {"comment"}

INPUT_KEYS = frozenset(
    {"type", "optional", "default", "description", "min", "max", "enum", "mode", "intellectual_property"}
)
VALUE_KEYS = frozenset({"type", "mode", "path", "path_on_compute", "datastore", "value"})
OUTPUT_KEYS = frozenset(
    {"type", "mode", "description", "path", "name", "version", "is_control", "intellectual_property"}
)
DECLARED_OUTPUT_KEYS = OUTPUT_KEYS - {"path", "name", "version"}
GIVEN_OUTPUT_KEYS = frozenset({"$schema", "type", "mode", "path", "name", "version"})
RESOURCE_KEYS = frozenset(
    {"instance_count", "instance_type", "properties", "locations", "shm_size", "max_instance_count", "docker_args"}
)
SERVICE_KEYS = frozenset({"type", "port", "nodes", "properties", "endpoint", "status", "error_message"})
SERVICE_KEYS |= {"ssh_public_keys", "log_dir"}  # of ssh and of tensor_board
QUEUE_KEYS = frozenset({"job_tier", "priority"})
JOB_TIERS = ("spot", "basic", "standard", "premium", "null")
SETTINGS_KEYS = frozenset(
    {"default_datastore", "default_compute", "continue_on_step_failure", "force_rerun", "on_init", "on_finalize"}
)
ENVIRONMENT_KEYS = frozenset(
    {"$schema", "name", "id", "description", "tags", "version", "creation_context", "latest_version", "properties"}
    | {"auto_delete_setting", "build", "image", "conda_file", "inference_config", "os_type", "datastore", "type"}
)
SWEEP_LIMITS = frozenset({"max_concurrent_trials", "max_total_trials", "timeout", "trial_timeout"})
OBJECTIVE_KEYS = frozenset({"goal", "primary_metric"})
SEARCH_KEYS = {
    "choice": ("values",),
    "randint": ("upper",),
    "uniform": ("min_value", "max_value"),
    "loguniform": ("min_value", "max_value"),
    "quniform": ("min_value", "max_value", "q"),
    "qloguniform": ("min_value", "max_value", "q"),
    "normal": ("mu", "sigma"),
    "lognormal": ("mu", "sigma"),
    "qnormal": ("mu", "sigma", "q"),
    "qlognormal": ("mu", "sigma", "q"),
}
LOGARITHMIC_SEARCHES = ("loguniform", "qloguniform", "lognormal", "qlognormal")
POLICY_KEYS = {
    "bandit": ("slack_factor", "slack_amount"),
    "median_stopping": (),
    "truncation_selection": ("truncation_percentage",),
}

PORT_MODES = frozenset(
    {"direct", "download", "eval_download", "eval_mount", "mount", "ro_mount", "rw_mount", "upload", "link"}
)
GIVEN_INPUT_MODES = frozenset({"download", "ro_mount", "direct"})
TABLE_MODES = GIVEN_INPUT_MODES | {"eval_mount", "eval_download"}
GIVEN_OUTPUT_MODES = frozenset({"mount", "upload", "rw_mount", "direct"})
IDENTITY_KEYS: dict[str, frozenset[str]] = {
    "managed": frozenset({"type", "client_id", "object_id", "msi_resource_id"}),
    "user_identity": frozenset({"type"}),
    "aml_token": frozenset({"type"}),
}
IDENTITY_KEYS["managed_identity"] = IDENTITY_KEYS["managed"]
SERVICE_TYPES = frozenset({"jupyter_lab", "ssh", "tensor_board", "vs_code"})
CLOUD_ONLY_TYPES = frozenset(
    {"automl", "data_transfer", "import", "finetuning", "distillation", "promptflow_parallel", "spark"}
    | {"flow", "do_while", "parallel_for", "ray"}
)

COMPONENT_NAME = re.compile(r"[a-z][a-z\d_]*")
STEP_NAME = re.compile(r"[a-z_][a-z\d_]*")
PORT_NAME = re.compile(r"[a-zA-Z_]\w*(\.\w+)*", re.ASCII)
SHM_SIZE = re.compile(r"[1-9]\d*[bkmg]", re.IGNORECASE)
