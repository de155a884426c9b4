"""What a training will take on machines that nobody has paid for yet: its step, its efficiency, its time and its cost.

Pure functions over frozen dataclasses: ``links`` has what wires give, ``collectives`` what an exchange takes over them,
``step`` what of it a training waits for, ``failures`` what machines that break cost, ``forecast`` all of it for a
number of nodes. Times are seconds, sizes bytes, speeds bytes a second. No framework is imported, and nothing measured
on a cluster is asked for.
"""

from allranks.planning.collectives import all_reduce_seconds, gather_seconds
from allranks.planning.failures import FailureRates, checkpoint_interval, effective_share
from allranks.planning.forecast import ClusterPlan, NodeForecast, forecast_nodes
from allranks.planning.links import NetworkLink, NodeNetwork
from allranks.planning.step import ModelExchange, StepTime, StepWork, predict_step

__all__ = [
    "ClusterPlan",
    "FailureRates",
    "ModelExchange",
    "NetworkLink",
    "NodeForecast",
    "NodeNetwork",
    "StepTime",
    "StepWork",
    "all_reduce_seconds",
    "checkpoint_interval",
    "effective_share",
    "forecast_nodes",
    "gather_seconds",
    "predict_step",
]
