"""The GPUs of one TensorFlow process, each with a replica of the model."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from shared.distributed import World


def strategy_of(world: World) -> Any:
    """Give the strategy that the ranks train with; None with Horovod, which has none."""
    try:
        return world.strategy
    except RuntimeError:
        return None


def count_replicas(strategy: Any) -> int:
    """Count the replicas of this process; 1 where a strategy has none here, or where there is no strategy."""
    if strategy is None or isinstance(strategy, tf.distribute.ParameterServerStrategy):
        return 1
    return len(strategy.extended.worker_devices)


def spread_rows(strategy: Any, values: Any) -> Any:
    """Give each replica of this process its part of the rows, which divide by their number."""
    replicas = count_replicas(strategy)
    if replicas == 1:
        return values
    size = len(values) // replicas

    def part(context: Any) -> Any:
        first = context.replica_id_in_sync_group % replicas * size
        return values[first : first + size]

    return strategy.experimental_distribute_values_from_function(part)
