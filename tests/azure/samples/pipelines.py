"""Pipelines as users write them, with everything that the reader has to find on the SDK's entities."""

import copy
from pathlib import Path

from azure.ai.ml import Input, Output, command, load_component
from azure.ai.ml.dsl import pipeline
from azure.ai.ml.dsl._group_decorator import group
from azure.ai.ml.entities import Environment, JobResourceConfiguration
from azure.ai.ml.sweep import Choice, LogUniform, RandomSamplingAlgorithm, TruncationSelectionPolicy

HERE = Path(__file__).parent
print("users print when their module is imported")

inline = command(
    name="inline",
    command="cat ${{inputs.first}}/sum > ${{outputs.copied}}; echo ${{inputs.times}}",
    inputs={"first": Input(type="uri_folder"), "times": 3},
    outputs={"copied": Output(type="uri_file")},
    environment=Environment(image="ubuntu:24.04"),
    code=str(HERE / "add"),
    distribution={"type": "mpi", "process_count_per_instance": 2},
    instance_count=2,
    shm_size="1g",
    environment_variables={"LEVEL": "1"},
)


@group
class Numbers:
    rate: float = 0.5
    start: int = 2


@pipeline(display_name="Inner one")
def inner(data: Input(type="uri_folder"), start: int):
    """Adds once."""
    add = load_component(HERE / "add" / "component.yaml")(data=data, start=start, rate=0.25)
    add.resources = copy.deepcopy(add.resources)
    add.resources.instance_count = start
    return {"result": add.outputs.sum}


@pipeline(
    description="All kinds of steps.",
    default_compute="cpu-cluster",
    continue_on_step_failure=False,
    force_rerun=True,
    tags={"team": "a"},
    experiment_name="samples",
)
def everything(
    data: Input(type="uri_folder", description="The numbers."),
    numbers: Numbers,
    extra: Input(type="uri_folder", optional=True) = None,
    start: Input(type="integer", min=1, max=5, description="Where to start.") = 2,
    mode: Input(type="string", enum=["fast", "exact"]) = "fast",
    flag: bool = True,
    zero: float = 0.0,
):
    first = inner(data=data, start=start)
    second = load_component(HERE / "add" / "component.yaml")(
        data=Input(type="uri_folder", path="azureml:numbers:1", mode="download"),
        extra=extra,
        start=numbers.start,
        rate=numbers.rate,
        mode=mode,
    )
    second.environment_variables = {"START": "${{parent.inputs.start}}"}
    second.set_limits(timeout=300)
    second.compute = "gpu-cluster"
    second.display_name = "Second"
    second.outputs.sum.mode = "upload"
    third = inline(first=first.outputs.result, times=4)
    third.outputs.copied = Output(
        type="uri_file", path="azureml://datastores/d/paths/p", name="registered", version="3"
    )
    return {"result": first.outputs.result, "model": second.outputs.model, "copied": third.outputs.copied}


@pipeline
def small(data: Input(type="uri_folder"), start: int = 1):
    """Adds once."""
    add = load_component(HERE / "add" / "component.yaml")(data=data, start=start)
    return {"result": add.outputs.sum}


@pipeline
def changed(data: Input(type="uri_folder")):
    """One object for two steps, and a component that is changed."""
    component = load_component(HERE / "add" / "component.yaml")
    one, two = component(data=data), component(data=data)
    one.resources.instance_count = 7
    other = load_component(HERE / "add" / "component.yaml")
    other.environment = "azureml:other:2"
    three = other(data=two.outputs.sum)
    return {"result": three.outputs.sum, "first": one.outputs.sum}


@pipeline(non_pipeline_inputs=["steps"])
def repeated(data: Input(type="uri_folder"), steps: int = 1):
    """As many steps as asked for."""
    for _ in range(steps):
        add = load_component(HERE / "add" / "component.yaml")(data=data)
        data = add.outputs.sum


@pipeline(default_compute="cpu-cluster")
def tuned(data: Input(type="uri_folder"), mode: str = "fast"):
    """A sweep over one step's inputs, with everything that can be set on it."""
    add = load_component(HERE / "add" / "component.yaml")(
        data=data, mode=mode, start=Choice([1, 2]), rate=LogUniform(min_value=-3.0, max_value=-1.0)
    )
    search = add.sweep(
        primary_metric="sum",
        goal="Minimize",
        sampling_algorithm=RandomSamplingAlgorithm(seed=4, rule="sobol", logbase="e"),
        early_termination_policy=TruncationSelectionPolicy(
            truncation_percentage=20, evaluation_interval=2, delay_evaluation=4
        ),
        max_total_trials=6,
        max_concurrent_trials=3,
        timeout=600,
        trial_timeout=60,
    )
    search.resources = JobResourceConfiguration(instance_count=2)
    other = load_component(HERE / "add" / "component.yaml")
    other.distribution.process_count_per_instance = 3
    grid = other(data=search.outputs.sum, start=Choice([1, 2]), rate=0.5).sweep(
        primary_metric="sum", goal="maximize", sampling_algorithm="grid", max_total_trials=2
    )
    return {"sum": grid.outputs.sum}


@pipeline
def by_binding(data: Input(type="uri_folder"), nodes: int = 2):
    """A shared object that is given a parameter."""
    add = load_component(HERE / "add" / "component.yaml")(data=data)
    add.resources.instance_count = nodes
    add.distribution.process_count_per_instance = nodes


DATA = Input(type="uri_folder", path=str(HERE / "add"))
built = small(data=DATA, start=3)
everything_built = everything(data=DATA, numbers=Numbers())
tuned_built = tuned(data=DATA)
not_a_pipeline = {"neither": "function"}


@pipeline
def failing(data: Input(type="uri_folder")):
    """Fails while it is built."""
    raise ValueError("no such luck")
