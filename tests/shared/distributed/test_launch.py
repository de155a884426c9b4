"""Every launcher's variables, whole, half and contradicting: the right place in the world, or an error that names them."""

from __future__ import annotations

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.distributed import Launch, LaunchError, detect
from shared.distributed.address import spare_ports

Variables = dict[str, str]


def mpi(rank: int, world: int, local: int, *, node_rank_trap: str = "0") -> Variables:
    return {
        "OMPI_COMM_WORLD_RANK": str(rank),
        "OMPI_COMM_WORLD_SIZE": str(world),
        "OMPI_COMM_WORLD_LOCAL_RANK": str(rank % local),
        "OMPI_COMM_WORLD_LOCAL_SIZE": str(local),
        "OMPI_COMM_WORLD_NODE_RANK": node_rank_trap,
    }


def azure_pytorch(rank: int, nodes: int, processes: int) -> Variables:
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(nodes * processes),
        "LOCAL_RANK": str(rank % processes),
        "NODE_RANK": str(rank // processes),
        "MASTER_ADDR": "10.0.0.4",
        "MASTER_PORT": "6105",
        "AZUREML_NODE_COUNT": str(nodes),
        "AZUREML_RUN_ID": "run",
    }


def torchrun(rank: int, nodes: int, processes: int) -> Variables:
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(nodes * processes),
        "LOCAL_RANK": str(rank % processes),
        "LOCAL_WORLD_SIZE": str(processes),
        "GROUP_RANK": str(rank // processes),
        "GROUP_WORLD_SIZE": str(nodes),
        "MASTER_ADDR": "10.0.0.4",
        "MASTER_PORT": "6105",
        "TORCHELASTIC_RUN_ID": "none",
        "TORCHELASTIC_RESTART_COUNT": "0",
    }


def horovodrun(rank: int, nodes: int, processes: int) -> Variables:
    return {
        "HOROVOD_RANK": str(rank),
        "HOROVOD_SIZE": str(nodes * processes),
        "HOROVOD_LOCAL_RANK": str(rank % processes),
        "HOROVOD_LOCAL_SIZE": str(processes),
        "HOROVOD_CROSS_RANK": str(rank // processes),
        "HOROVOD_CROSS_SIZE": str(nodes),
    }


def slurm(rank: int, nodes: int, processes: int) -> Variables:
    return {
        "SLURM_STEP_ID": "0",
        "SLURM_PROCID": str(rank),
        "SLURM_NTASKS": str(nodes * processes),
        "SLURM_LOCALID": str(rank % processes),
        "SLURM_NODEID": str(rank // processes),
        "SLURM_STEP_NUM_NODES": str(nodes),
        "SLURM_STEP_NODELIST": "gpu[03-05,9],x1",
        "SLURM_STEP_TASKS_PER_NODE": f"{processes}(x{nodes})",
    }


def override(rank: int, nodes: int, processes: int) -> Variables:
    return {
        "ALLRANKS_RANK": str(rank),
        "ALLRANKS_WORLD_SIZE": str(nodes * processes),
        "ALLRANKS_LOCAL_RANK": str(rank % processes),
        "ALLRANKS_LOCAL_WORLD_SIZE": str(processes),
    }


def open_mpi(rank: int, nodes: int, processes: int) -> Variables:
    return mpi(rank, nodes * processes, processes)


FAMILIES = {
    "override": override,
    "torchrun": torchrun,
    "horovodrun": horovodrun,
    "pytorch": azure_pytorch,
    "openmpi": open_mpi,
    "slurm": slurm,
}
RANK_NAMES = {
    "override": "ALLRANKS_RANK",
    "torchrun": "RANK",
    "horovodrun": "HOROVOD_RANK",
    "pytorch": "RANK",
    "openmpi": "OMPI_COMM_WORLD_RANK",
    "slurm": "SLURM_PROCID",
}


def tf_config(workers: list[str], task: str = "worker", index: int = 0, **others: list[str]) -> Variables:
    cluster = {"worker": workers, **others}
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": task, "index": index}})}


def numbers(launch: Launch) -> tuple[int, ...]:
    return (
        launch.rank,
        launch.world_size,
        launch.local_rank,
        launch.local_world_size,
        launch.node_rank,
        launch.num_nodes,
    )


def place(rank: int, nodes: int, processes: int) -> tuple[int, ...]:
    return (rank, nodes * processes, rank % processes, processes, rank // processes, nodes)


def run_port(run: str) -> int:
    return 20000 + int(hashlib.sha256(run.encode()).hexdigest(), 16) % 10000


# ---- environments that were seen, and the place that each means
HALF = {"OMPI_COMM_WORLD_RANK": "7", "SLURM_STEP_ID": "0", "PMI_SIZE": "x", "TF_CONFIG": "{"}
LOST = {"AZUREML_NODE_COUNT": "4", "AZUREML_RUN_ID": "job_1", "TORCHELASTIC_RUN_ID": "job_1", "NODE_RANK": "3"}
CR_NODE_RANK = {name: value for name, value in azure_pytorch(5, 2, 4).items() if name != "NODE_RANK"}
CHIEF = {"chief": ["h0:2222"]}
AZURE_MPI = {"AZ_BATCH_MASTER_NODE": "10.0.0.4:6000", "AZ_BATCHAI_MPI_MASTER_NODE": "10.0.0.4"}


@pytest.mark.parametrize(
    ("variables", "launch"),
    [
        ({}, Launch(0, 1, 0, 1, 0, 1, "single", "127.0.0.1", 6105)),
        (
            {**mpi(1, 2, 1), **AZURE_MPI, "AZUREML_NODE_COUNT": "2", "AZUREML_RUN_ID": "run"},
            Launch(1, 2, 0, 1, 1, 2, "azureml-mpi", "10.0.0.4", run_port("run")),
        ),
        (
            {**mpi(3, 4, 4), "AZ_BATCHAI_MPI_MASTER_NODE": "localhost", "AZUREML_NODE_COUNT": "1"},
            Launch(3, 4, 3, 4, 0, 1, "azureml-mpi", "127.0.0.1", 6105),
        ),
        (azure_pytorch(5, 2, 4), Launch(5, 8, 1, 4, 1, 2, "azureml-pytorch", "10.0.0.4", 6105)),
        (
            {**azure_pytorch(1, 2, 1), **torchrun(5, 2, 4)},
            Launch(5, 8, 1, 4, 1, 2, "torchrun", "10.0.0.4", 6105),
        ),
        ({**torchrun(5, 3, 2), **LOST}, Launch(5, 6, 1, 2, 2, 3, "torchrun", "10.0.0.4", 6105)),
        (
            {**tf_config(["h0:2222", "h1:2222"], index=1), "AZUREML_NODE_COUNT": "2"},
            Launch(1, 2, 0, 1, 1, 2, "azureml-tensorflow", "h0", 6105),
        ),
    ],
)
def test_the_whole_launch(variables: Variables, launch: Launch) -> None:
    assert detect(variables) == launch
    assert launch.control_port == launch.main_port + 1


@pytest.mark.parametrize(
    ("variables", "launcher", "expected"),
    [
        ({"SLURM_NTASKS": "4", "SLURM_JOB_ID": "7", "SLURM_NNODES": "2"}, "single", place(0, 1, 1)),
        ({**slurm(3, 2, 2), "MASTER_ADDR": "head"}, "slurm", place(3, 2, 2)),
        ({**slurm(3, 2, 2), "PMI_RANK": "3", "PMI_SIZE": "4"}, "slurm", place(3, 2, 2)),
        ({**horovodrun(3, 2, 2), "MASTER_ADDR": "head"}, "horovodrun", place(3, 2, 2)),
        ({"RANK": "1", "WORLD_SIZE": "2"}, None, place(1, 1, 2)),
        ({"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}, None, place(1, 1, 2)),
        ({**CR_NODE_RANK, "AZUREML_CR_NODE_RANK": "1"}, "azureml-pytorch", place(5, 2, 4)),
        # Two launchers that agree; one in a launch per node; one around which the other's variables are half.
        ({**azure_pytorch(1, 2, 2), **mpi(1, 4, 2)}, "azureml-pytorch", place(1, 2, 2)),
        ({**azure_pytorch(5, 2, 4), **mpi(1, 2, 1)}, None, place(5, 2, 4)),
        ({**slurm(1, 2, 1), **azure_pytorch(3, 2, 2)}, None, place(3, 2, 2)),
        ({**slurm(1, 2, 1), **mpi(3, 4, 2), "MASTER_ADDR": "head"}, None, place(3, 2, 2)),
        ({**HALF, **torchrun(3, 2, 2)}, "torchrun", place(3, 2, 2)),
        ({**HALF, **horovodrun(3, 2, 2), "MASTER_ADDR": "head"}, "horovodrun", place(3, 2, 2)),
        ({**HALF, **override(3, 2, 2), "MASTER_ADDR": "head"}, None, place(3, 2, 2)),
        # OMPI_COMM_WORLD_NODE_RANK is not the node.
        ({**mpi(5, 8, 4, node_rank_trap="3"), **AZURE_MPI}, None, place(5, 2, 4)),
        (tf_config(["h0:2222", "h0:2223"], index=1), None, place(1, 1, 2)),
        (tf_config(["h1:2222", "h2:2222"], **CHIEF), None, place(1, 3, 1)),
        (tf_config(["h1:2222", "h2:2222"], "chief", **CHIEF), None, place(0, 3, 1)),
    ],
)
def test_the_place_and_the_launcher(variables: Variables, launcher: str | None, expected: tuple[int, ...]) -> None:
    launch = detect(variables)
    assert numbers(launch) == expected
    assert launcher in (None, launch.launcher)


UNREADABLE = [
    "{",
    "[]",
    "{}",
    '{"cluster": {}, "task": {"type": "worker", "index": 0}}',
    '{"cluster": {"worker": []}, "task": {"type": "worker", "index": 0}}',
    '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 1}}',
    '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": -1}}',
    '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": true}}',
    '{"cluster": {"worker": ["a:1"]}, "task": {"type": "evaluator", "index": 0}}',
    '{"cluster": {"worker": ["a:1"]}}',
    '{"cluster": {"worker": "a:1"}, "task": {"type": "worker", "index": 0}}',
]
"""TF_CONFIG that says too little."""


RANK_3 = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "MASTER_ADDR": "10.0.0.4"}


@pytest.mark.parametrize(
    "others",
    [
        {**slurm(3, 2, 2)},
        {"LOCAL_SIZE": "2", "CROSS_RANK": "1", "CROSS_SIZE": "2"},  # of DeepSpeed's launcher
        {"PET_NNODES": "2", "PET_NODE_RANK": "1", "PET_NPROC_PER_NODE": "2"},  # of Kubeflow's PyTorchJob
    ],
)
def test_variables_beside_rank_and_world_size_tell_the_nodes(others: Variables) -> None:
    assert numbers(detect(RANK_3 | others)) == place(3, 2, 2)
    with pytest.raises(LaunchError, match=r"ranks are on this node\. Set LOCAL_WORLD_SIZE, or AZUREML_NODE_COUNT"):
        detect(RANK_3 | {"PET_NNODES": "1:4"})


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"AZUREML_NODE_COUNT": "2"}, "AZUREML_NODE_COUNT=2"),
        (
            {**azure_pytorch(1, 1, 8), **mpi(1, 4, 4)},
            r"disagree: RANK=1, WORLD_SIZE=8.*OMPI_COMM_WORLD_SIZE=4",
        ),
        ({**azure_pytorch(1, 1, 4), **mpi(2, 4, 4)}, "Two launchers disagree"),
        ({**azure_pytorch(5, 2, 4), **mpi(0, 2, 1)}, "disagree"),
        (
            {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "10.0.0.4", "HOSTNAME": "node1"},
            "nothing says how many of the 2 ranks are on this node",
        ),
        ({**azure_pytorch(5, 2, 4), "NODE_RANK": "0"}, "node by node"),
        ({**azure_pytorch(1, 2, 4), "WORLD_SIZE": "7"}, r"WORLD_SIZE=7.*AZUREML_NODE_COUNT=2"),
        ({**torchrun(1, 1, 2), "AZUREML_NODE_COUNT": "2"}, "AZUREML_NODE_COUNT=2"),
        (
            {**torchrun(1, 1, 2), "AZUREML_NODE_COUNT": "2", "AZUREML_RUN_ID": "job_1"},
            r'give it --rdzv_id "\$AZUREML_RUN_ID"',
        ),
        ({**slurm(0, 2, 2), "SLURM_STEP_TASKS_PER_NODE": "3,1"}, "SLURM_STEP_TASKS_PER_NODE=3,1"),
        ({**tf_config(["h0:2222"]), "AZUREML_NODE_COUNT": "2"}, "AZUREML_NODE_COUNT=2"),
        (mpi(1, 2, 1), "MASTER_ADDR"),
        *(({"AZUREML_NODE_COUNT": count}, "AZUREML_NODE_COUNT") for count in ("0", "-1", "two", "")),
        *(({"MASTER_PORT": port}, "MASTER_PORT") for port in ("0", "65535", "70000", "http", "")),
        *(({"TF_CONFIG": text}, "TF_CONFIG=") for text in UNREADABLE),
    ],
)
def test_what_contradicts_itself_or_says_too_little(variables: Variables, message: str) -> None:
    with pytest.raises(LaunchError, match=message):
        detect(variables)


# ---- the mistakes of others that can be seen in the variables; the others are in test_world.py and test_control.py


@pytest.mark.parametrize("family", FAMILIES)
def test_mistake_1_half_a_family_is_never_a_silent_single_process(family: str) -> None:
    variables = FAMILIES[family](1, 2, 2)
    missing = RANK_NAMES[family]
    with pytest.raises(LaunchError, match=missing):
        detect({name: value for name, value in variables.items() if name != missing})


def test_mistake_3_every_rank_finds_the_same_port() -> None:
    ports = {detect({**mpi(rank, 4, 4), "AZUREML_RUN_ID": "a"}).main_port for rank in range(4)}
    assert ports == {run_port("a")}
    assert detect({"AZUREML_RUN_ID": "b"}).main_port == run_port("b") != run_port("a")


# ---- each family, whole


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("nodes", "processes"), [(1, 1), (1, 4), (2, 1), (3, 2)])
def test_family_complete(family: str, nodes: int, processes: int) -> None:
    for rank in range(nodes * processes):
        launch = detect({**FAMILIES[family](rank, nodes, processes), "MASTER_ADDR": "head"})
        assert numbers(launch) == place(rank, nodes, processes)


# ---- contradictions


@pytest.mark.parametrize("family", [name for name in FAMILIES if name not in ("torchrun", "horovodrun", "slurm")])
@pytest.mark.parametrize("number", ["x", "", "1.0", "0x1", "٣", "-1", "9"])
def test_numbers_that_are_none_or_out_of_range(family: str, number: str) -> None:
    name = RANK_NAMES[family]
    with pytest.raises(LaunchError, match=name):
        detect({**FAMILIES[family](1, 2, 2), name: number})


@pytest.mark.parametrize("family", ["torchrun", "horovodrun", "slurm", "override"])
def test_ranks_that_are_not_numbered_node_by_node(family: str) -> None:
    variables = FAMILIES[family](1, 2, 2)
    local = next(name for name in variables if "LOCAL_RANK" in name or "LOCALID" in name)
    with pytest.raises(LaunchError, match="node by node"):
        detect({**variables, local: "0"})


@pytest.mark.parametrize(
    "around", [{}, {"RANK": "5", "WORLD_SIZE": "8"}, {**azure_pytorch(5, 2, 4), "LOCAL_RANK": "2"}]
)
def test_local_ranks_that_open_mpi_has_permuted_within_the_node(around: Variables) -> None:
    permuted = {**mpi(5, 8, 4), "OMPI_COMM_WORLD_LOCAL_RANK": "2", "MASTER_ADDR": "head"}
    assert numbers(detect({**permuted, **around})) == (5, 8, 2, 4, 1, 2)
    with pytest.raises(LaunchError, match="OMPI_COMM_WORLD_LOCAL_RANK"):
        detect({**permuted, **around, "OMPI_COMM_WORLD_LOCAL_RANK": "4"})
    with pytest.raises(LaunchError, match=r"node by node|disagree"):
        detect({**permuted, **azure_pytorch(5, 2, 4), "LOCAL_RANK": "2", "NODE_RANK": "0"})


@pytest.mark.parametrize(("shared", "port", "count"), [("True", 6105, 1), ("False", 6105, 8), ("True", 39481, 8)])
def test_a_port_that_torchrun_has_drawn_is_none_that_somebody_has_chosen(shared: str, port: int, count: int) -> None:
    variables = {**torchrun(0, 1, 2), "TORCHELASTIC_RUN_ID": "mine", "TORCHELASTIC_USE_AGENT_STORE": shared}
    assert len(spare_ports(variables, "torchrun", port)) == count


# ---- launchers that say too little, or by which each machine starts one process


@pytest.mark.parametrize(
    "variables",
    [
        {"PMIX_RANK": "1"},
        {"PMI_RANK": "1", "PMI_SIZE": "2"},
        {"MPI_LOCALRANKID": "0"},
        {"MV2_COMM_WORLD_RANK": "1"},
        {"MVP_COMM_WORLD_RANK": "1"},
        {"FLUX_TASK_RANK": "1", "FLUX_JOB_SIZE": "2"},
        {"PALS_RANKID": "1"},
        {"AZ_BATCHAI_TASK_INDEX": "1"},
        {"AZ_BATCHAI_TASK_INDEX": "0", "AZ_BATCHAI_WORKER_HOSTS": "10.0.0.4:2222,10.0.0.5:2222"},
        {"AZ_BATCH_NODE_LIST": "10.0.0.4;10.0.0.5"},
        {"SM_HOSTS": '["algo-1","algo-2"]'},
        {"SM_CURRENT_HOST": "algo-1"},
    ],
)
def test_a_launcher_that_says_too_little_is_never_one_process(variables: Variables) -> None:
    with pytest.raises(LaunchError) as refused:
        detect(variables)
    assert all(f"{name}={value}"[:30] in str(refused.value) for name, value in variables.items())
    around = {**variables, **azure_pytorch(1, 2, 1), "PMIX_RANK": "1"}
    assert numbers(detect(around)) == place(1, 2, 1)  # another launcher has said all
    assert numbers(detect({**variables, **override(3, 2, 2), "MASTER_ADDR": "head"})) == place(3, 2, 2)


@pytest.mark.parametrize("around", [slurm(0, 1, 1), {"RANK": "0", "WORLD_SIZE": "1"}])
@pytest.mark.parametrize("other", [{"PMI_RANK": "1", "PMI_SIZE": "4"}, {"PMI_SIZE": "4"}, {"PALS_RANKID": "2"}])
def test_another_launcher_inside_is_never_the_process_around_it(around: Variables, other: Variables) -> None:
    with pytest.raises(LaunchError, match=r"does not read has started this process.*ALLRANKS_RANK"):
        detect({**around, **other})


@pytest.mark.parametrize("variables", [{"AZ_BATCHAI_TASK_INDEX": "0", "AZ_BATCH_NODE_LIST": "10.0.0.4"}, {}])
def test_one_node_of_azure_without_a_launcher_is_one_process(variables: Variables) -> None:
    assert detect({**variables, "AZ_BATCHAI_NODE_IP": "10.0.0.4"}).launcher == "single"


# ---- TF_CONFIG


def test_tf_config_with_parameter_servers() -> None:
    workers, servers = ["10.0.0.4:2223", "10.0.0.5:2223", "10.0.0.6:2222"], ["10.0.0.4:2222", "10.0.0.5:2222"]
    server = detect(tf_config(workers, "ps", 1, ps=servers))
    assert (server.role, server.rank, server.world_size, server.num_ps) == ("ps", 1, 3, 2)
    assert (server.local_rank, server.node_rank, server.main_address) == (0, 1, "10.0.0.4")
    worker = detect(tf_config(workers, "worker", 0, ps=servers))
    assert (worker.role, worker.rank, worker.num_ps, worker.alone) == ("worker", 0, 2, False)


def test_tf_configs_ports_are_left_alone() -> None:
    workers = ["h:6105", "h:6108"]
    assert detect(tf_config(workers)).main_port == 6109
    assert detect(tf_config(["h:6106"])).main_port == 6107


# ---- address and port


@pytest.mark.parametrize(
    ("variables", "address"),
    [
        ({"MASTER_ADDR": "a", "AZ_BATCHAI_MPI_MASTER_NODE": "b"}, "a"),
        ({"AZ_BATCHAI_MPI_MASTER_NODE": "b", "AZ_BATCH_MASTER_NODE": "c:6000"}, "b"),
        ({"AZ_BATCHAI_MPI_MASTER_NODE": "localhost", "AZ_BATCH_MASTER_NODE": "c:6000"}, "c"),
        ({"AZ_BATCH_MASTER_NODE": "c"}, "c"),
        ({"AZ_BATCH_MASTER_NODE": "[fd00::1]:6000"}, "fd00::1"),
        ({"AZ_BATCH_NODE_LIST": "10.0.0.4;10.0.0.5"}, "10.0.0.4"),
    ],
)
def test_address_on_several_nodes(variables: Variables, address: str) -> None:
    assert detect({**mpi(1, 2, 1), **variables}).main_address == address


@pytest.mark.parametrize(
    ("nodes", "first"),
    [("gpu[03-05,9],x1", "gpu03"), ("a,b", "a"), ("r[1-2]n[3,5]", "r1n3"), ("one", "one"), ("n[7,9]", "n7")],
)
def test_address_from_slurms_node_list(nodes: str, first: str) -> None:
    assert detect({**slurm(1, 2, 1), "SLURM_STEP_NODELIST": nodes}).main_address == first


@pytest.mark.parametrize(
    ("family", "ids"),
    [
        ("openmpi", {"PMIX_NAMESPACE": "prterun-vm-8525@1"}),
        ("openmpi", {"OMPI_MCA_ess_base_jobid": "3204448257"}),
        ("slurm", {"SLURM_JOB_ID": "7"}),
    ],
)
def test_two_jobs_without_a_run_id_have_ports_of_their_own(family: str, ids: Variables) -> None:
    ports = []
    for job in (ids, {name: f"{value}1" for name, value in ids.items()}):
        found = {detect({**FAMILIES[family](rank, 1, 4), **job}).main_port for rank in range(4)}
        assert len(found) == 1
        ports += found
    assert ports[0] != ports[1]
    assert all(20000 <= port < 30000 for port in ports)
    assert detect({**FAMILIES[family](0, 1, 4), **ids, "MASTER_PORT": "6105"}).main_port == 6105


# ---- whatever the environment: the right place, or an error


worlds = st.tuples(st.integers(1, 4), st.integers(1, 4)).flatmap(
    lambda shape: st.tuples(st.integers(0, shape[0] * shape[1] - 1), st.just(shape[0]), st.just(shape[1]))
)


@given(world=worlds, family=st.sampled_from(sorted(FAMILIES)), data=st.data())
def test_some_of_a_familys_variables_give_the_right_place_or_an_error(
    world: tuple[int, int, int], family: str, data: st.DataObject
) -> None:
    rank, nodes, processes = world
    whole = {**FAMILIES[family](rank, nodes, processes), "AZUREML_NODE_COUNT": str(nodes)}
    kept = data.draw(st.sets(st.sampled_from(sorted(whole))))
    variables = {name: whole[name] for name in kept}
    try:
        launch = detect(variables)
    except LaunchError:
        return
    if launch.launcher == "single":
        assert nodes == 1 or "AZUREML_NODE_COUNT" not in kept
        assert not kept & {RANK_NAMES[family]} or (family == "slurm" and "SLURM_STEP_ID" not in kept)
    else:
        assert (launch.rank, launch.world_size) == (rank, nodes * processes)


@given(world=worlds, first=st.sampled_from(sorted(FAMILIES)), second=st.sampled_from(sorted(FAMILIES)), other=worlds)
def test_two_families_give_the_place_of_one_or_an_error(
    world: tuple[int, int, int], first: str, second: str, other: tuple[int, int, int]
) -> None:
    variables = {**FAMILIES[second](*other), **FAMILIES[first](*world), "MASTER_ADDR": "head"}
    variables.pop("AZUREML_NODE_COUNT", None)
    try:
        launch = detect(variables)
    except LaunchError:
        return
    assert numbers(launch) in (place(*world), place(*other))


@given(
    st.dictionaries(
        st.sampled_from(
            sorted({name for family in FAMILIES.values() for name in family(0, 1, 1)} | {"TF_CONFIG", "MASTER_PORT"})
        ),
        st.one_of(st.integers(-2, 9).map(str), st.sampled_from(["", "x", "{}", "none"])),
    )
)
def test_any_environment_gives_a_launch_that_holds_together_or_an_error(variables: Variables) -> None:
    try:
        launch = detect(variables)
    except LaunchError as error:
        assert any(name in str(error) for name in (*variables, "MASTER_ADDR"))  # noqa: PT017
        return
    assert launch.rank // launch.local_world_size == launch.node_rank
    assert launch.local_rank == launch.rank % launch.local_world_size or launch.launcher == "openmpi"
    assert launch.num_nodes * launch.local_world_size == launch.world_size


def test_the_control_planes_token_is_the_engines_secret_where_there_is_one() -> None:
    from shared.distributed.joining import _job_token

    variables = azure_pytorch(0, 1, 2)
    known, others, secret = (_job_token(detect(variables), variables | more) for more in ({}, OTHER_RUN, SECRET))
    assert len({known, others, secret}) == 3
    assert secret == _job_token(detect(variables), variables | SECRET | OTHER_RUN)


OTHER_RUN, SECRET = {"AZUREML_RUN_ID": "another"}, {"ALLRANKS_JOB_TOKEN": "a secret of the attempt"}
