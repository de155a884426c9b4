"""The variables of each rank are those of Azure ML, no more and no fewer."""

from __future__ import annotations

import fnmatch
import json
import os
from pathlib import Path

import pytest

from allranks.local.variables import proxy_exceptions
from tests.local.support import ROOT, allranks, pipeline, run_json, step
from tools import variables_page

DUMP = 'python -c \'import json, os, sys; json.dump(dict(os.environ), open(sys.argv[1] + os.environ.get("RANK", ""), "w"))\' '

ALWAYS = {
    "AZUREML_RUN_ID", "AZUREML_ROOT_RUN_ID", "AZUREML_EXPERIMENT_ID", "AZUREML_ARM_SUBSCRIPTION",
    "AZUREML_ARM_RESOURCEGROUP", "AZUREML_ARM_WORKSPACE_NAME", "AZUREML_ARM_PROJECT_NAME", "AZUREML_NODE_COUNT",
    "AZUREML_PROCESS_NAME", "AZUREML_CR_COMPUTE_CONTEXT", "AZUREML_CR_NODE_RANK", "AZUREML_EXPERIMENT_SCOPE",
    "AZ_BATCH_NODE_LIST", "AZ_BATCH_HOST_LIST", "AZ_BATCH_JOB_ID", "AZ_BATCH_IS_CURRENT_NODE_MASTER",
    "AZ_BATCHAI_NODE_IP", "AZ_BATCHAI_JOB_MASTER_NODE_IP", "AZ_BATCHAI_TASK_INDEX", "AZ_BATCH_NODE_IS_DEDICATED",
    "NCCL_SOCKET_IFNAME", "MLFLOW_TRACKING_URI", "MLFLOW_TRACKING_TOKEN", "MLFLOW_RUN_ID", "MLFLOW_EXPERIMENT_ID",
    "MLFLOW_EXPERIMENT_NAME", "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "OMP_NUM_THREADS", "TMPDIR", "AZURE_ML_OUTPUT_out", "out", "PIP_PYTHON",
    "ACCELERATE_USE_CPU", "ALLRANKS_JOB_TOKEN",
}  # fmt: skip
PYTORCH = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT"}
SHELL = {"_", "SHLVL", "OLDPWD", "PWD", "PATH", "LC_CTYPE"}


def dumped(tmp_path: Path, more: str = "", **caller: str) -> list[dict[str, str]]:
    file = pipeline(
        tmp_path,
        f"type: pipeline\njobs: {{one: {step(DUMP + '${{outputs.out}}/env', outputs='out: {type: uri_folder}', more=more)}}}\n",
    )
    result = run_json(file, cwd=tmp_path, **caller)
    assert result["exit"] == 0, result
    folder = Path(result["steps"]["one"]["outputs"]["out"])
    return [json.loads(path.read_text()) for path in sorted(folder.iterdir())]


@pytest.fixture(scope="module")
def environments(tmp_path_factory) -> dict[str, dict[str, str]]:
    """What one rank finds in a run of each dump's shape."""
    return variables_page.run_all(tmp_path_factory.mktemp("dumps"))


@pytest.mark.slow
@pytest.mark.parametrize("title", variables_page.DUMPS["dumps"])
def test_a_rank_finds_what_jobs_on_azure_ml_have_printed_or_the_reason_is_known(title, environments):
    found = list(variables_page.compared(variables_page.DUMPS["dumps"][title], environments[title]))
    assert any(one.state == "same" for one in found)
    assert [one for one in found if one.state != "same" and not one.reason] == []
    assert [one.name for one in found if one.state == "wrongly set"] == []


def test_the_page_of_variables_is_what_the_comparison_says(environments):
    assert variables_page.PAGE.read_text() == variables_page.page_text(environments), "run: make renew"


def test_no_reason_is_left_over():
    names = {name for dump in variables_page.DUMPS["dumps"].values() for name in dump["variables"]}
    assert all(any(fnmatch.fnmatchcase(name, key) for name in names) for key in variables_page.DUMPS["reasons"])


def test_pytorch_on_two_nodes_of_two_ranks(tmp_path):
    more = "distribution: {type: pytorch, process_count_per_instance: 2}, resources: {instance_count: 2}"
    ranks = dumped(tmp_path, more)
    assert len(ranks) == 4
    for rank, seen in enumerate(ranks):
        assert set(seen) - set(os.environ) - SHELL == (ALWAYS | PYTORCH) - set(os.environ)
        node, local = divmod(rank, 2)
        expected = {
            "RANK": rank, "WORLD_SIZE": 4, "LOCAL_RANK": local, "NODE_RANK": node, "AZUREML_NODE_COUNT": 2,
            "AZUREML_CR_NODE_RANK": node, "AZUREML_PROCESS_NAME": f"rank_{rank}", "MASTER_ADDR": "127.0.0.1",
            "AZ_BATCH_NODE_LIST": "127.0.0.1;127.0.0.2", "AZ_BATCHAI_NODE_IP": f"127.0.0.{node + 1}",
        }  # fmt: skip
        assert {name: seen[name] for name in expected} == {name: str(value) for name, value in expected.items()}
        assert "LOCAL_WORLD_SIZE" not in seen
    assert len({seen["MASTER_PORT"] for seen in ranks}) == 1
    (token,) = {seen["ALLRANKS_JOB_TOKEN"] for seen in ranks}
    assert len(token) == 32
    assert len({seen["TMPDIR"] for seen in ranks}) == 2, "each node has its own"
    assert len({seen["PWD"] for seen in ranks}) == 2


def test_without_a_distribution(tmp_path):
    (seen,) = dumped(tmp_path)
    assert set(seen) - set(os.environ) - SHELL == ALWAYS - set(os.environ)
    assert seen["AZUREML_PROCESS_NAME"] == "main"


def test_a_trial_finds_what_it_tries(tmp_path):
    file = pipeline(
        tmp_path,
        """
        type: sweep
        trial:
          command: python -c 'import os, sys; print(sys.argv[1:], os.environ["AZUREML_SWEEP_rate"])' ${{search_space.rate}}
          environment: azureml:whatever:1
        sampling_algorithm: grid
        search_space: {rate: {type: choice, values: [0.5, 2]}}
        objective: {goal: minimize, primary_metric: loss}
        limits: {max_total_trials: 2}
        """,
    )
    allranks("run", file, cwd=tmp_path)
    logs = (tmp_path / ".allranks" / "runs").rglob("std_log.txt")
    assert sorted(log.read_text().strip() for log in logs) == ["['0.5'] 0.5", "['2'] 2"]


def test_a_launcher_around_the_engine_does_not_leak_into_its_steps(tmp_path):
    launchers = {
        "RANK": "7", "WORLD_SIZE": "8", "OMPI_COMM_WORLD_RANK": "7", "TF_CONFIG": "{}", "SLURM_PROCID": "7",
        "TORCHELASTIC_RUN_ID": "x", "PET_NNODES": "2", "AZUREML_NODE_COUNT": "9", "MLFLOW_RUN_ID": "x", "PMI_RANK": "3",
    }  # fmt: skip
    (seen,) = dumped(tmp_path, "", **launchers)
    assert not set(seen) & (set(launchers) - {"AZUREML_NODE_COUNT", "MLFLOW_RUN_ID"})
    assert seen["MLFLOW_RUN_ID"] == seen["AZUREML_RUN_ID"]
    assert seen["AZUREML_NODE_COUNT"] == "1"


def test_the_steps_own_variables_win(tmp_path):
    (seen,) = dumped(tmp_path, "environment_variables: {OMP_NUM_THREADS: '5', NCCL_DEBUG: INFO}")
    assert (seen["OMP_NUM_THREADS"], seen["NCCL_DEBUG"]) == ("5", "INFO")


def test_threads_are_split_over_the_ranks(tmp_path):
    more = "distribution: {type: pytorch, process_count_per_instance: 2}"
    cores = len(os.sched_getaffinity(0))
    assert {seen["OMP_NUM_THREADS"] for seen in dumped(tmp_path, more)} == {str(max(1, cores // 2))}


PROXY = "http://127.0.0.1:9"  # nobody listens there

TRAINING = f"""
type: pipeline
jobs:
  prepare:
    component: {ROOT}/components/prepare_data/component.yaml
  train:
    component: {ROOT}/components/train_tf_multiworker/component.yaml
    inputs: {{data: "${{{{parent.jobs.prepare.outputs.data}}}}", epochs: 1}}
    distribution: {{type: tensorflow, worker_count: 2}}
    resources: {{instance_count: 2}}
"""


def test_the_nodes_of_a_step_are_no_hosts_of_the_proxy(tmp_path: Path) -> None:
    one = step(
        "echo $NO_PROXY $no_proxy > ${{outputs.out}}/$NODE_RANK",
        outputs="out: {type: uri_folder}",
        more="distribution: {type: pytorch, process_count_per_instance: 1}, resources: {instance_count: 2}",
    )
    file = pipeline(tmp_path, f"type: pipeline\njobs: {{one: {one}}}\n")
    result = run_json(file, cwd=tmp_path, http_proxy=PROXY, no_proxy="intern.example")
    told = [path.read_text().split() for path in Path(result["steps"]["one"]["outputs"]["out"]).iterdir()]
    assert told == [["intern.example,127.0.0.1,localhost,127.0.0.2"] * 2] * 2


def test_who_has_no_proxy_gets_no_exceptions_from_one() -> None:
    assert proxy_exceptions({"PATH": "/bin"}, ["localhost"]) == {}


@pytest.mark.slow
@pytest.mark.exhaustive
def test_tensorflow_meets_there(tmp_path: Path) -> None:
    result = run_json(pipeline(tmp_path, TRAINING), cwd=tmp_path, http_proxy=PROXY, https_proxy=PROXY)
    assert result["status"] == "succeeded", result["steps"]["train"]["failure"]
