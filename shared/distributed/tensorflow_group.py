"""TensorFlow's clusters: MultiWorkerMirrored, where all workers step as one, and ParameterServer, where none waits."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

import tensorflow as tf

from shared.distributed import devices
from shared.distributed.control import Control
from shared.distributed.devices import read_node
from shared.distributed.errors import Refusal
from shared.distributed.frameworks import FrameworkGroup
from shared.distributed.launch import Launch

_BACKENDS = ("multi_worker", "parameter_server")
_REMEDY = (
    "Install TensorFlow's build for GPUs with the CUDA that it asks for, which drivers of the 525 series and newer can "
    f"run: pip install 'tensorflow[and-cuda]=={tf.__version__}'."
)
_COMPLAINT = "its own messages above say why; most often CUDA's libraries are missing"
_SERVERS_END = "the parameter servers may end"
"""What rank 0 stores in the control plane when nothing more is to be computed."""


@dataclass(frozen=True, slots=True)
class TensorFlowGroup(FrameworkGroup):
    """A place in the cluster.

    Attributes:
        strategy: the ``tf.distribute.Strategy``; None on a process that computes for the coordinator in rank 0.
        coordinator: the ``ClusterCoordinator`` on rank 0 of a cluster with parameter servers, else None.
    """

    strategy: Any
    coordinator: Any


def start_tensorflow(launch: Launch, control: Control, backend: str | None, timeout: timedelta) -> TensorFlowGroup:
    """Make the strategy, before TensorFlow computes anything: it would refuse afterwards.

    The backend is ``multi_worker`` (None means that too) or ``parameter_server``. Collectives have no limit, whatever
    the `timeout`: for each of them TensorFlow would start a thread that sleeps as long, two in a step, thousands in
    ten minutes of short ones. A rank that waits for a worker that has died or hangs is ended by its heartbeat thread.

    Raises:
        Refusal: several processes that no TF_CONFIG describes, a cluster without parameter servers where some are
            needed, GPUs that cannot be used, or fewer than processes on a node.
    """
    backend = backend or _BACKENDS[0]
    if backend not in _BACKENDS:
        raise ValueError(f"backend={backend!r}: with tensorflow it has to be None or one of {', '.join(_BACKENDS)}.")
    if not launch.alone and "TF_CONFIG" not in os.environ:
        raise Refusal(
            f"TensorFlow's cluster is described by TF_CONFIG, and these {launch.world_size} processes were started by "
            f"{launch.launcher}. Give the step the distribution `type: tensorflow`."
        )
    limit_threads(launch)
    if launch.role == "worker":
        take_gpus(launch, control, one_each=launch.local_world_size > 1)
    else:
        tf.config.set_visible_devices([], "GPU")  # a parameter server would take the workers' memory
    if backend == "parameter_server":
        return _parameter_server(launch, control, backend)
    if launch.num_ps:
        raise Refusal(f"The step has {launch.num_ps} parameter server(s), and MultiWorkerMirrored uses none.")
    before = signal.getsignal(signal.SIGTERM)
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    # TensorFlow's listener for preemptions has taken SIGTERM meanwhile and tells nobody here: a rank that is asked to
    # stop before it trains would train on until it is killed.
    signal.signal(signal.SIGTERM, before)
    return _group(launch, control, backend, strategy, None)


def limit_threads(launch: Launch) -> None:
    """Give this process its part of the node's cores, or every rank would take all of them."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    share = max(1, (os.cpu_count() or 1) // launch.local_world_size)
    tf.config.threading.set_intra_op_parallelism_threads(int(given) if given.isdecimal() else share)


def take_gpus(launch: Launch, control: Control, *, one_each: bool) -> list[Any]:
    """The GPUs that this process computes on, made the only ones that it sees; none for the CPU. All workers meet here.

    Without `one_each` a process takes all GPUs that it sees.

    Raises:
        Refusal: on every worker, if any has a GPU that cannot be used, see ``devices``.
    """
    node = read_node(os.environ)
    gpus = tf.config.list_physical_devices("GPU")
    build = tf.sysconfig.get_build_info()
    toolkit: devices.Toolkit = "ROCm" if build["is_rocm_build"] else "CUDA" if build["is_cuda_build"] else ""
    version = build.get("cuda_version", "")
    found = devices.FrameworkGpus(f"tensorflow {tf.__version__}", toolkit, version, len(gpus), _REMEDY, _COMPLAINT)
    index = devices.choose_gpu(node, found, launch)
    taken = gpus if index is None or not one_each else [gpus[index]]
    for gpu in taken:
        facts = tf.config.experimental.get_device_details(gpu)
        if "compute_capability" in facts and build["is_cuda_build"]:
            name, capability = facts.get("device_name", gpu.name), facts["compute_capability"]
            built = build.get("cuda_compute_capabilities", [])
            devices.check_kernels(found.name, name, capability, built, version, node)
    identity = devices.visible_identity(os.environ) if taken else ""
    devices.agree_on_devices(control, launch, node, len(gpus), identity)
    if taken:
        tf.config.set_visible_devices(taken, "GPU")
    for gpu in taken:
        tf.config.experimental.set_memory_growth(gpu, enable=True)
    return taken


def _parameter_server(launch: Launch, control: Control, backend: str) -> TensorFlowGroup:
    """Start this process's server, and on rank 0 the coordinator.

    TensorFlow 2 wants a coordinator beside the workers, and Azure ML names none. So worker 0 does both: it starts its
    own server, which then computes for the coordinator in the same process like those of all other workers.
    """
    if launch.num_ps == 0:
        raise Refusal(
            "ParameterServer needs a server: give the step's distribution a parameter_server_count of 1 or more."
        )
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    config = json.loads(os.environ["TF_CONFIG"])
    server = tf.distribute.Server(
        resolver.cluster_spec(),
        job_name=config["task"]["type"],
        task_index=int(config["task"]["index"]),
        protocol="grpc",
        start=True,
    )
    _SERVERS.append(server)
    control.set(f"server of {launch.role} {launch.rank}", value=True)
    leads = launch.role == "worker" and launch.rank == 0
    if leads:  # a coordinator that comes before the servers waits for minutes
        for role, count in (("worker", launch.world_size), ("ps", launch.num_ps)):
            for rank in range(count):
                control.get(f"server of {role} {rank}")
    strategy = tf.distribute.ParameterServerStrategy(resolver) if leads else None
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy) if leads else None
    return _group(launch, control, backend, strategy, coordinator)


_SERVERS: list[Any] = []  # a server ends when nothing refers to it


def _group(launch: Launch, control: Control, backend: str, strategy: Any, coordinator: Any) -> TensorFlowGroup:
    device, kind = ("/GPU:0", "cuda") if tf.config.get_visible_devices("GPU") else ("/CPU:0", "cpu")
    return TensorFlowGroup(device, f"{backend} on {kind}", partial(_close, launch, control), strategy, coordinator)


def _close(launch: Launch, control: Control) -> None:
    """Let the parameter servers end; on one of them, wait for that.

    The other workers serve too: while they wait for rank 0 at the end of ``init``.
    """
    if launch.role != "worker":
        control.get(_SERVERS_END)
    elif launch.rank == 0 and launch.num_ps:
        control.set(_SERVERS_END, value=True)
