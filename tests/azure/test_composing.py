"""``from allranks import components, scale`` in a user's ``@pipeline``."""

import copy
import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from azure.ai.ml import Input, TensorFlowDistribution, command, load_component
from azure.ai.ml.dsl import pipeline
from azure.ai.ml.sweep import Choice

from allranks import catalogue, components, scale
from allranks.azure.document import job_document
from allranks.azure.export import export_pipeline
from allranks.azure.python_target import read_python_pipeline
from allranks.errors import UsageError
from allranks.spec import Source, check_machines, pipeline_from, read_component, read_pipeline

ROOT = Path(__file__).parents[2]
ADD = Path(__file__).parent / "samples" / "add" / "component.yaml"
DATA = Input(type="uri_folder", path="azureml:numbers:1")


def sent(step: Any) -> dict[str, Any]:
    """The part of the request that says where a step runs."""
    rest = step._to_rest_object()
    keys = ("resources", "distribution", "limits", "environment_variables", "queue_settings")
    return {key: rest[key] for key in keys if rest.get(key)}


def test_importing_the_package_loads_neither_the_sdk_nor_yaml() -> None:
    code = (
        "import sys, allranks; print([m for m in sys.modules if m.split('.')[0] in ('azure', 'yaml', 'rich', 'torch')])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_unknown_component_offers_the_nearest() -> None:
    with pytest.raises(AttributeError, match="no component 'train_dpd'; there is train_ddp"):
        components.train_dpd  # noqa: B018
    with pytest.raises(AttributeError, match=r"there is prepare_data, .*train_ddp, "):
        components.zzz  # noqa: B018
    assert not hasattr(components, "_repr_html_")
    assert copy.copy(components) is not None


@pytest.mark.parametrize("name", catalogue.COMPONENTS)
def test_the_signature_is_what_the_yaml_says(name: str) -> None:
    component = getattr(components, name)
    declared = read_component(catalogue.component_files()[name]).inputs
    parameters = inspect.signature(component).parameters
    assert list(parameters) == list(declared)
    for port in declared.values():
        parameter = parameters[port.name]
        assert parameter.kind is inspect.Parameter.KEYWORD_ONLY
        assert parameter.default == (inspect.Parameter.empty if port.required else port.default)
        expected = {"string": str, "integer": int, "number": float}.get(port.type, Input)
        assert parameter.annotation is expected
        assert f"{port.name}: {' '.join(port.description.split())}" in component.__doc__
    assert component._to_rest_object().properties.component_spec == load_rest(name)


def load_rest(name: str) -> dict[str, Any]:
    spec: dict[str, Any] = load_component(catalogue.component_files()[name])._to_rest_object().properties.component_spec
    return spec


def test_steps_of_one_component_do_not_share_anything() -> None:
    first, second = components.train_ddp(data=DATA), components.train_ddp(data=DATA)
    before = sent(second)
    first.resources.instance_count = 7
    first.distribution.process_count_per_instance = 7
    assert sent(second) == before


def test_scale_leaves_other_steps_of_the_same_object_alone() -> None:
    component = load_component(ADD)
    whole = component._to_rest_object().properties.component_spec
    first, second = component(data=DATA), component(data=DATA)
    before = sent(second)
    given = {"timeout": "1m", "tier": "spot", "environment_variables": {"LEVEL": 3}}
    assert scale(first, nodes=4, processes_per_node=8, instance_type="Standard_X", **given) is first
    assert sent(second) == before
    assert component._to_rest_object().properties.component_spec == whole
    assert sent(first) == {
        "resources": {"instance_count": 4, "instance_type": "Standard_X", "shm_size": "2g"},
        "distribution": {"distribution_type": "PyTorch", "process_count_per_instance": 8},
        "limits": {"timeout": "PT1M", "job_limits_type": "Command"},
        "environment_variables": {"LEVEL": "3"},
        "queue_settings": {"job_tier": "Spot"},
    }
    scale(second, nodes=2, environment_variables={"LEVEL": "1"})
    assert sent(first)["environment_variables"] == {"LEVEL": "3"}
    assert sent(first)["resources"]["instance_count"] == 4


def parallel_step() -> Any:
    from azure.ai.ml.parallel import RunFunction, parallel_run_function

    task = RunFunction(code="./src", entry_script="score.py", environment="azureml:numbers:1")
    make = parallel_run_function(
        name="score",
        inputs={"rows": Input(type="uri_folder")},
        input_data="${{inputs.rows}}",
        instance_count=2,
        max_concurrency_per_instance=2,
        task=task,
    )
    return make(rows=DATA)


def test_a_parallel_step_gets_machines_and_workers_and_no_timeout_that_is_never_sent() -> None:
    step = parallel_step()
    scale(step, nodes=3, processes_per_node=4, instance_type="Standard_X", identity="managed")
    sent = step._to_rest_object()
    assert sent["resources"] == {"instance_count": 3, "instance_type": "Standard_X"}
    assert (sent["max_concurrency_per_instance"], sent["identity"]["identity_type"]) == (4, "Managed")
    bound = scale(parallel_step(), processes_per_node="${{parent.inputs.workers}}")
    assert bound._to_rest_object()["max_concurrency_per_instance"] == "${{parent.inputs.workers}}"
    with pytest.raises(UsageError, match="none for the step as a whole") as caught:
        scale(parallel_step(), timeout="2h")
    assert "retry_settings.timeout" in caught.value.hint
    with pytest.raises(UsageError, match="tier of a parallel step"):
        scale(parallel_step(), tier="spot")


def test_a_component_with_the_input_gets_the_processes_there() -> None:
    step = scale(components.train_torchrun(data=DATA), nodes=2, processes_per_node=4)
    assert step._build_inputs()["processes_per_node"] == 4
    assert sent(step)["distribution"]["process_count_per_instance"] == 1, "Azure ML starts torchrun, once for each node"
    assert sent(step)["resources"]["instance_count"] == 2


def step_with(distribution: Any) -> Any:
    made = command(name="sample", command="true", environment="azureml:some:1", distribution=distribution)
    return made()


def test_tensorflow_workers_follow_the_nodes() -> None:
    step = scale(step_with(TensorFlowDistribution(parameter_server_count=1)), nodes=3, processes_per_node=1)
    assert sent(step)["distribution"] == {
        "distribution_type": "TensorFlow",
        "parameter_server_count": 1,
        "worker_count": 3,
    }
    with pytest.raises(UsageError, match="one process on each node, not 2"):
        scale(step, processes_per_node=2)


def test_mpi_and_no_distribution() -> None:
    step = scale(step_with({"type": "mpi", "process_count_per_instance": 1}), nodes=2, processes_per_node=4)
    assert sent(step)["distribution"] == {"distribution_type": "Mpi", "process_count_per_instance": 4}
    assert sent(step)["resources"] == {"instance_count": 2}
    with pytest.raises(UsageError, match="has no distribution"):
        scale(step_with(None), processes_per_node=2)


H100, A100 = "Standard_ND96isr_H100_v5", "Standard_NC24ads_A100_v4"
HELPING = {"NCCL_IB_PCI_RELAXED_ORDERING": "1"}


def test_infiniband_gets_its_variables_where_they_help_and_a_user_s_value_wins() -> None:
    def variables(**settings: Any) -> dict[str, str]:
        rest = sent(scale(load_component(ADD)(data=DATA), processes_per_node=8, **settings))
        return rest.get("environment_variables", {})

    assert variables(nodes=2, instance_type=H100) == HELPING
    assert variables(nodes="${{parent.inputs.nodes}}", instance_type=H100.upper()) == HELPING
    assert variables(nodes=1, instance_type=H100) == {}
    assert variables(nodes=2, instance_type="Standard_ND40rs_v2") == {}
    own = {"NCCL_IB_PCI_RELAXED_ORDERING": "0"}
    assert variables(nodes=2, instance_type=H100, environment_variables=own) == own


def test_more_ranks_than_gpus_are_refused_whichever_way_they_come() -> None:
    said = "8 processes on each node, and Standard_NC24ads_A100_v4 has 1 A100 GPU"
    with pytest.raises(UsageError, match=said):
        scale(load_component(ADD)(data=DATA), processes_per_node=8, instance_type=A100)
    step = scale(components.train_torchrun(data=DATA), instance_type=A100)
    with pytest.raises(UsageError, match=said):
        scale(step, processes_per_node=8)


def test_idle_gpus_and_slow_networks_are_warned_of_at_the_user_s_line() -> None:
    with pytest.warns(UserWarning, match="7 would be paid for and idle") as caught:
        scale(load_component(ADD)(data=DATA), processes_per_node=1, instance_type=H100)
    (ours,) = [one for one in caught if "idle" in str(one.message)]
    assert ours.filename == __file__
    with pytest.warns(UserWarning, match="no InfiniBand.*Standard_ND96amsr_A100_v4 has 1600 Gb/s"):
        scale(load_component(ADD)(data=DATA), nodes=2, processes_per_node=1, instance_type=A100)


def test_parameters_of_the_pipeline_are_sent_as_bindings() -> None:
    @pipeline
    def sample(
        data: Input(type="uri_folder"), nodes: int = 2, processes: int = 3, memory: str = "4g", seconds: int = 9
    ) -> dict[str, Any]:
        ddp = scale(components.train_ddp(data=data), nodes=nodes, processes_per_node=processes)
        scale(ddp, environment_variables={"SECONDS": seconds})
        torchrun = scale(
            components.train_torchrun(data=data),
            nodes="${{parent.inputs.nodes}}",
            processes_per_node=processes,
            shm_size=memory,
            timeout=seconds,
        )
        scale(torchrun, processes_per_node=processes)  # a second time: copies of bindings stay bindings
        return {"model": ddp.outputs.model}

    job = sample(data=DATA)
    ddp, torchrun = (job.jobs[name]._to_rest_object() for name in ("ddp", "torchrun"))
    assert ddp["resources"]["instance_count"] == "${{parent.inputs.nodes}}"
    assert ddp["distribution"]["process_count_per_instance"] == "${{parent.inputs.processes}}"
    assert ddp["environment_variables"] == {"SECONDS": "${{parent.inputs.seconds}}"}
    assert torchrun["resources"] == {
        "instance_count": "${{parent.inputs.nodes}}",
        "shm_size": "${{parent.inputs.memory}}",
    }
    assert torchrun["inputs"]["processes_per_node"]["value"] == "${{parent.inputs.processes}}"
    assert torchrun["limits"]["timeout"] == "${{parent.inputs.seconds}}"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"nodes": 0}, "nodes=0: it has to be at least 1"),
        ({"nodes": True}, "nodes=True: it has to be a whole number"),
        ({"nodes": 1.5}, "nodes=1.5: it has to be a whole number"),
        ({"processes_per_node": -1}, "processes_per_node=-1: it has to be at least 1"),
        ({"shm_size": "8"}, "shm_size='8': it has to be a number with b, k, m or g"),
        ({"timeout": "soon"}, "timeout='soon'"),
        ({"tier": "cheap"}, "tier='cheap': it has to be one of spot, basic, standard, premium"),
        ({"environment_variables": {"A B": "1"}}, "'A B' is no name"),
        ({"environment_variables": {"A": True}}, "A=True: it has to be a text or a number"),
    ],
)
def test_wrong_values_are_refused_with_the_rule(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        scale(load_component(ADD)(data=DATA), **settings)
    assert said in str(caught.value)


def test_the_trials_of_a_sweep_are_scaled_and_the_component_is_not(tmp_path: Path) -> None:
    component = components.train_ddp
    whole = component._to_rest_object().properties.component_spec

    @pipeline
    def search(data: Input(type="uri_folder")) -> None:
        trial = component(data=data, epochs=Choice([1, 2]))
        train = trial.sweep(
            primary_metric="loss", goal="minimize", sampling_algorithm="random", max_total_trials=2, timeout=60
        )
        scale(train, nodes=2, processes_per_node=8, instance_type=H100, tier="spot")
        for wrong in ({"identity": "user"}, {"environment_variables": {"A": "1"}}):
            with pytest.raises(UsageError, match="of a sweep step"):
                scale(train, **wrong)

    job = search(data=DATA)
    assert component._to_rest_object().properties.component_spec == whole
    step = pipeline_from(job_document(job), Source(None, tmp_path), catalogue.resolve).steps["train"]
    assert step.component.resources.nodes == 2
    assert step.component.resources.instance_type == H100
    assert step.component.distribution.processes_per_node == 8
    assert step.tier == "spot"
    assert job.jobs["train"]._to_rest_object()["queue_settings"] == {"job_tier": "spot"}


def test_only_a_command_sweep_or_parallel_step_can_be_scaled() -> None:
    with pytest.raises(
        UsageError, match="takes a command, sweep or parallel step of a pipeline, not a CommandComponent"
    ):
        scale(load_component(ADD), nodes=2)


@pytest.mark.slow
def test_the_tier_of_a_step_is_read_back_from_python_and_from_what_is_exported(tmp_path: Path) -> None:
    source = tmp_path / "cheap.py"
    source.write_text(
        "from azure.ai.ml.dsl import pipeline\nfrom allranks import components, scale\n\n\n"
        "@pipeline\ndef cheap():\n"
        "    check = components.check_cluster()\n"
        "    scale(check, tier='spot', instance_type='Standard_NC24ads_A100_v4')\n"
    )
    (text,) = export_pipeline(f"{source}:cheap", tmp_path / "cheap.yaml").values()
    (tmp_path / "cheap.yaml").write_text(text)
    steps = read_pipeline(tmp_path / "cheap.yaml", catalogue.resolve).steps
    assert steps["check"].tier == "spot"
    assert read_python_pipeline(f"{source}:cheap").steps["check"].tier == "spot"
    (problem,) = check_machines(read_pipeline(tmp_path / "cheap.yaml", catalogue.resolve))
    assert "no output of the step is mounted" in problem.message
