"""On what each step of a submission runs, as whom and how long: said, chosen, and refused where it cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

import allranks
from allranks.errors import SpecError, UsageError
from tests.azure.stand_in.fixture import StandIn
from tests.azure.submitting import Cli, component_of, job_sent

H100 = "Standard_ND96isr_H100_v5"
OUTER = """
type: pipeline
settings: {{default_compute: "azureml:{compute}"}}
jobs:
  i:
    type: pipeline
    component: ./inner.yaml
  j: {{type: command, component: ./count.yaml}}
"""
INNER = """
type: pipeline
name: inner
jobs:
  train:
    type: command
    component: ./count.yaml
    resources: {instance_count: 2}
"""
COUNT = """
type: command
name: count
command: ls
environment: {image: "ubuntu:24.04"}
distribution: {type: pytorch, process_count_per_instance: 1}
resources: {shm_size: 2g}
"""


@pytest.fixture
def nested(tmp_path: Path) -> str:
    """A pipeline with a nested one, whose step inherits the compute."""
    for name, text in {"inner.yaml": INNER, "count.yaml": COUNT}.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "outer.yaml").write_text(OUTER.format(compute="gpu-cluster"))
    return str(tmp_path / "outer.yaml")


@pytest.mark.slow
def test_the_sizes_of_a_cluster_are_named_and_nested_steps_are_judged_by_them(
    ready: StandIn, cli: Cli, nested: str
) -> None:
    refused = cli("submit", nested, "--scale", "i.train=2x16")
    assert refused.code == 2
    assert "16 processes on each node, and Standard_ND96isr_H100_v5 has 8 H100 GPUs" in refused.err
    refused = cli("submit", nested, "--scale", "i.train=9x8")
    assert refused.code == 2
    assert "9 nodes, and the cluster gpu-cluster grows to 8" in refused.err
    assert not ready.state["jobs"]
    done = cli("submit", nested, "--scale", "i.train=2x8", "--scale", "j=1x8")
    assert done.code == 0, done.err
    assert f"on {H100.upper()} (compute gpu-cluster): i.train 2x8, j 1x8" in done.err
    assert "Azure chooses" not in done.err


@pytest.mark.slow
def test_several_ranks_on_serverless_compute_want_a_size(ready: StandIn, cli: Cli) -> None:
    said = "Azure chooses one, as far as is known without GPUs: prepare (1x2), train (2x8), evaluate (1x2)"
    dry = cli("submit", "image_classification", "--scale", "train=2x8", "--dry-run", "--json")
    assert said in dry.err
    assert "--instance-type train=SIZE" in dry.err
    assert (dry.json["steps"]["train"]["size"], dry.json["steps"]["train"]["place"]) == (
        None,
        "a size that Azure chooses",
    )
    sent = cli("submit", "image_classification", "--scale", "train=2x8")
    assert sent.code == 0
    assert said in sent.err
    assert "on a size that Azure chooses: prepare 1x2, train 2x8, evaluate 1x2" in sent.err
    ready.forget_log()
    for more in ((), ("--instance-type", f"train={H100}")):
        refused = cli("submit", "image_classification", "--scale", "train=2x16", "--dry-run", *more)
        assert refused.code == 2
        assert "16 processes on each node" in refused.err
    assert ready.log == []
    unknown = cli("submit", "image_classification", "--scale", "train=2x16", "--dry-run", "--compute", "mine")
    assert unknown.code == 0
    assert "no size has more than 8 GPUs" in unknown.err


@pytest.mark.slow
def test_sizes_identities_and_timeouts_by_step(ready: StandIn, cli: Cli, nested: str) -> None:
    Path(nested).write_text(OUTER.format(compute="serverless"))
    chosen = ("--instance-type", f"i.train={H100}", "--instance-type", "Standard_DS3_v2", "--scale", "i.train=2x8")
    who = ("--identity", "managed", "--identity", "i.train=User_Identity", "--identity", "j=AMLToken")
    when = ("--timeout", "i.train=2h", "--timeout", "90")
    dry = cli("submit", nested, *chosen, *who, *when, "--dry-run", "--json")
    assert dry.json["steps"]["i.train"]["timeout"] == 7200
    assert cli("submit", nested, *chosen, *who, *when, "--dry-run").out.count("Standard_DS3_v2") == 1
    done = cli("submit", nested, *chosen, *who, *when)
    assert done.code == 0, done.err
    assert f"on {H100}: i.train 2x8" in done.err
    job = job_sent(ready)
    assert job["identity"] == {"identityType": "Managed"}
    inner = component_of(ready, job["jobs"]["i"])["jobs"]["train"]
    assert inner["resources"] == {"instance_count": 2, "instance_type": H100}, "the step's own replace the component's"
    assert inner["identity"]["identity_type"] == "UserIdentity"
    assert inner["limits"]["timeout"] == "PT2H"
    other = job["jobs"]["j"]
    assert other["resources"]["instance_type"] == "Standard_DS3_v2"
    assert other["resources"]["shm_size"] == "2g"
    assert (other["identity"]["identity_type"], other["limits"]["timeout"]) == ("AMLToken", "PT1M30S")


@pytest.mark.slow
def test_the_same_from_python(ready: StandIn) -> None:
    allranks.submit(
        "tune_image_classification",
        instance_type={"train": H100, "": "Standard_DS3_v2"},
        identity="user",
        timeout={"train": "1d", "prepare": 60},
        scale={"train": (1, 8)},
    )
    with pytest.raises(UsageError, match="identity of a sweep step: the SDK sends none"):
        allranks.submit("tune_image_classification", identity={"train": "user"})
    job = job_sent(ready)
    sweep, prepare = job["jobs"]["train"], job["jobs"]["prepare"]
    assert (sweep["limits"]["timeout"], job["identity"]) == (86400, {"identityType": "UserIdentity"})
    assert component_of(ready, sweep["trial"])["resources"]["instance_type"] == H100
    assert (prepare["resources"]["instance_type"], prepare["limits"]["timeout"]) == ("Standard_DS3_v2", "PT1M")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--instance-type", f"j={H100}"), "it runs on the compute 'gpu-cluster', whose own size counts"),
        (("--instance-type", H100), "each runs on a cluster, or names a size of its own"),
        (("--instance-type", "j=a b"), "'a b' is no VM size"),
        (("--instance-type", "=x"), "is not STEP=VALUE"),
        (("--timeout", "j=1", "--timeout", "j=2"), "--timeout is given twice for step 'j'"),
        (("--timeout", "k=2h"), "'k' is no step of outer.yaml. hint: Steps: i, i.train, j."),
        (("--timeout", "i=2h"), "timeout of i: it is a pipeline. hint: Its steps: i.train."),
        (("--timeout", "j=2 weeks"), "'2 weeks' is no time. hint: Give a number of seconds"),
        (("--timeout", "0"), "'0' is no time"),
        (("--identity", "j=me"), "'me' is no identity of a job. hint: It is one of managed, user, amltoken."),
    ],
)
def test_what_cannot_be_is_refused(cli: Cli, nested: str, options: tuple[str, ...], said: str) -> None:
    done = cli("submit", nested, *options, "--dry-run")
    assert done.code == 2
    assert said in " ".join(done.err.split())


def test_ranks_that_no_size_has_are_refused_in_python(nested: str) -> None:
    with pytest.raises(SpecError, match="no size has more than 8 GPUs"):
        allranks.submit(nested, compute="serverless", scale={"j": (1, 9)})
