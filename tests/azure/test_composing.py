"""``from allranks import components, scale`` in a user's ``@pipeline``."""

import copy
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from azure.ai.ml import Input, TensorFlowDistribution, command, load_component
from azure.ai.ml.dsl import pipeline

import allranks
from allranks import catalogue, components, scale
from allranks.errors import UsageError

ROOT = Path(__file__).parents[2]
ADD = Path(__file__).parent / "samples" / "add" / "component.yaml"
DATA = Input(type="uri_folder", path="azureml:numbers:1")


def sent(step: Any) -> dict[str, Any]:
    """The part of the request that says where a step runs."""
    rest = step._to_rest_object()
    return {key: rest.get(key) for key in ("resources", "distribution", "limits")}


def test_importing_the_package_loads_neither_the_sdk_nor_yaml() -> None:
    code = (
        "import sys, allranks; print([m for m in sys.modules if m.split('.')[0] in ('azure', 'yaml', 'rich', 'torch')])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_version_is_that_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert allranks.__version__ == project["version"]
    assert dir(allranks) == ["__version__", "components", "scale"]
    with pytest.raises(AttributeError, match="it has __version__, components, scale"):
        allranks.nothing  # noqa: B018


def test_every_component_is_there_by_its_name() -> None:
    assert dir(components) == sorted(catalogue.COMPONENTS)
    for name in catalogue.COMPONENTS:
        assert getattr(components, name).name == name


def test_an_unknown_component_offers_the_nearest() -> None:
    with pytest.raises(AttributeError, match="no component 'train_dpd'; there is train_ddp"):
        components.train_dpd  # noqa: B018
    with pytest.raises(AttributeError, match="there is prepare_data, train_ddp"):
        components.zzz  # noqa: B018
    assert not hasattr(components, "_repr_html_")
    assert copy.copy(components) is not None


def test_steps_of_one_component_do_not_share_anything() -> None:
    first, second = components.train_ddp(data=DATA), components.train_ddp(data=DATA)
    before = sent(second)
    first.resources.instance_count = 7
    first.distribution.process_count_per_instance = 7
    assert sent(second) == before


def test_scale_leaves_other_steps_of_the_same_object_alone() -> None:
    component = load_component(ADD)
    first, second = component(data=DATA), component(data=DATA)
    before = sent(second)
    assert scale(first, nodes=4, processes_per_node=8, instance_type="Standard_X", timeout=60) is first
    assert sent(second) == before
    assert sent(first) == {
        "resources": {"instance_count": 4, "instance_type": "Standard_X", "shm_size": "2g"},
        "distribution": {"distribution_type": "PyTorch", "process_count_per_instance": 8},
        "limits": {"timeout": "PT1M", "job_limits_type": "Command"},
    }


def test_what_is_not_given_stays_as_it_is() -> None:
    step = load_component(ADD)(data=DATA)
    before = sent(step)
    assert sent(scale(step)) == before
    assert sent(scale(step, shm_size="16g"))["resources"] == {"instance_count": 1, "shm_size": "16g"}


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


def test_parameters_of_the_pipeline_are_sent_as_bindings() -> None:
    @pipeline
    def sample(
        data: Input(type="uri_folder"), nodes: int = 2, processes: int = 3, memory: str = "4g", seconds: int = 9
    ) -> dict[str, Any]:
        ddp = scale(components.train_ddp(data=data), nodes=nodes, processes_per_node=processes)
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
    ],
)
def test_wrong_values_are_refused_with_the_rule(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        scale(load_component(ADD)(data=DATA), **settings)
    assert said in str(caught.value)


def test_only_a_command_step_can_be_scaled() -> None:
    with pytest.raises(UsageError, match="takes a command step of a pipeline, not a CommandComponent"):
        scale(load_component(ADD), nodes=2)
