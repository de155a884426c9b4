"""The GPUs of one TensorFlow process, each with a replica of the model, and statistics that are alike on all ranks."""

from __future__ import annotations

from typing import Any

import keras
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


def share_statistics(model: keras.Model, world: World) -> None:
    """Give all ranks, and all their GPUs, the statistics of rank 0's first, which are saved; every rank calls this.

    Each GPU's batch normalization has seen its own rows only: Keras brings nothing of them together. What moves are
    the weights of floating point that do not train; the generators that dropout draws from rightly differ.
    """
    statistics = [
        variable.value for variable in model.non_trainable_variables if tf.as_dtype(variable.dtype).is_floating
    ]
    strategy = strategy_of(world)
    if not statistics or isinstance(strategy, tf.distribute.ParameterServerStrategy):
        return  # on parameter servers there is one of each for all
    if world.world_size == count_replicas(strategy) == 1:
        return
    if strategy is None:
        import horovod.tensorflow as hvd

        hvd.broadcast_variables(statistics, root_rank=0)
    else:
        for variable, value in zip(statistics, _of_the_first(statistics, strategy), strict=True):
            variable.assign(value)


def _of_the_first(variables: list[Any], strategy: Any) -> list[Any]:
    """Values that variables have in the first replica of all, as tensors."""

    @tf.function
    def read() -> Any:
        here = tf.distribute.get_replica_context()
        first = tf.equal(here.replica_id_in_sync_group, 0)
        own = [tf.where(first, variable, tf.zeros_like(variable)) for variable in variables]
        return here.all_reduce(tf.distribute.ReduceOp.SUM, own)

    return [strategy.experimental_local_results(value)[0] for value in strategy.run(read)]
