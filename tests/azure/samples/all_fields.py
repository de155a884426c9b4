"""A pipeline job with every field that the SDK's job, steps and settings have; ``test_export_fields.py`` counts them."""

import copy
from pathlib import Path

from azure.ai.ml import Input, Output, command, load_component
from azure.ai.ml.dsl import pipeline
from azure.ai.ml.entities import (
    AmlTokenConfiguration,
    Environment,
    JobResourceConfiguration,
    JupyterLabJobService,
    ManagedIdentityConfiguration,
    QueueSettings,
    SshJobService,
    TensorBoardJobService,
    UserIdentityConfiguration,
    VsCodeJobService,
)
from azure.ai.ml.sweep import BanditPolicy, Choice, RandomSamplingAlgorithm, Uniform

HERE = Path(__file__).parent
ADD = HERE / "add" / "component.yaml"

inline = command(
    name="inline",
    display_name="Inline",
    description="Copies a sum.",
    tags={"kind": "inline"},
    command="cat ${{inputs.first}}/sum > ${{outputs.copied}}; echo ${{inputs.times}} ${{inputs.text}}",
    inputs={"first": Input(type="uri_folder", mode="ro_mount"), "times": 3, "text": "1.0"},
    outputs={"copied": Output(type="uri_file", mode="upload")},
    environment=Environment(
        name="own",
        version="3",
        description="What it runs in.",
        tags={"of": "tests"},
        image="ubuntu:24.04",
        conda_file={"name": "c", "dependencies": ["python=3.11"]},
        properties={"a": "b"},
    ),
    code=str(HERE / "add"),
    distribution={"type": "mpi", "process_count_per_instance": 2},
    environment_variables={"LEVEL": "1"},
    instance_count=2,
    instance_type="Standard_DS3_v2",
    locations=["westeurope"],
    docker_args="--ipc host",
    shm_size="1g",
    timeout=300,
    job_tier="spot",
    priority="high",
    is_deterministic=False,
    identity=UserIdentityConfiguration(),
    services={
        "lab": JupyterLabJobService(nodes="all"),
        "shell": SshJobService(ssh_public_keys="ssh-rsa AAAA", nodes="all"),
        "board": TensorBoardJobService(log_dir="logs", nodes="all"),
        "code": VsCodeJobService(nodes="all"),
    },
)

inline.component.properties = {"made": "by hand"}


@pipeline(display_name="Inner", description="Adds once.", tags={"level": "inner"})
def inner(data: Input(type="uri_folder"), rate: float = 2):
    """Adds once."""
    add = load_component(ADD)(data=data, start=2, rate=rate)
    add.identity = ManagedIdentityConfiguration(client_id="11111111-1111-1111-1111-111111111111")
    add.comment = "inside"
    add.tags = {"step": "add"}
    return {"result": add.outputs.sum}


@pipeline(
    display_name="All fields",
    description="Everything at once.",
    tags={"team": "a", "number": "1"},
    experiment_name="fields",
    default_compute="cpu-cluster",
    default_datastore="workspaceblobstore",
    continue_on_step_failure=False,
    force_rerun=True,
)
def all_fields(data: Input(type="uri_folder"), rate: float = 1, text: str = "1.0", flag: bool = True, count: int = 10):
    nested = inner(data=data, rate=rate)
    nested.display_name = "Nested"
    nested.comment = "a pipeline"
    nested.tags = {"step": "nested"}
    nested.properties = {"owner": "me"}

    add = load_component(ADD)(
        data=Input(type="uri_folder", path="azureml:numbers:1", mode="download"), start=count, rate=0.5
    )
    add.display_name = "Adding"
    add.comment = "a step"
    add.tags = {"step": "second"}
    add.properties = {"owner": "you"}
    add.compute = "gpu-cluster"
    add.identity = AmlTokenConfiguration()
    add.environment_variables = {"RATE": "${{parent.inputs.rate}}"}
    add.set_limits(timeout=60)
    add.distribution = copy.deepcopy(add.distribution)
    add.distribution.process_count_per_instance = 3
    add.queue_settings = QueueSettings(job_tier="Standard", priority="low")
    add.services = {"lab": JupyterLabJobService(nodes="all")}
    add.resources = JobResourceConfiguration(
        instance_count=2,
        instance_type="Standard_DS3_v2",
        locations=["westeurope", "northeurope"],
        max_instance_count=4,
        docker_args="--cap-add SYS_PTRACE",
        shm_size="2g",
        properties={"singularity": {"priority": "high"}},
    )
    add.outputs.sum = Output(
        type="uri_folder", mode="upload", path="azureml://datastores/d/paths/p", name="sums", version="3"
    )

    copied = inline(first=nested.outputs.result, times=4, text=text)
    copied.comment = "${{parent.inputs.text}}"
    copied.outputs.copied = Output(type="uri_file", path="azureml://datastores/d/paths/c", name="copy", version="4")

    search = load_component(ADD)(data=data, start=Choice([1, 2]), rate=Uniform(0, 1)).sweep(
        primary_metric="sum",
        goal="maximize",
        sampling_algorithm=RandomSamplingAlgorithm(seed=4),
        early_termination_policy=BanditPolicy(slack_factor=0.1, evaluation_interval=2, delay_evaluation=4),
        max_total_trials=6,
        max_concurrent_trials=3,
        timeout=600,
        trial_timeout=60,
    )
    search.display_name = "Searching"
    search.comment = "a sweep"
    search.tags = {"step": "search"}
    search.properties = {"owner": "they"}
    search.compute = "gpu-cluster"
    search.resources = JobResourceConfiguration(instance_count=2, shm_size="3g")
    search.queue_settings = QueueSettings(job_tier="Spot", priority="high")
    return {"result": nested.outputs.result, "copied": copied.outputs.copied, "sum": search.outputs.sum}


full = all_fields(data=Input(type="uri_folder", path=str(HERE / "add"), mode="ro_mount"), rate=10)
full.name = "all_fields_1"
full.compute = "cpu-cluster"
full.identity = UserIdentityConfiguration()
full.services = {"lab": JupyterLabJobService(nodes="all")}
full.properties = {"project": "x"}
full.outputs.result = Output(type="uri_folder", mode="rw_mount", path="azureml://datastores/d/paths/out")
