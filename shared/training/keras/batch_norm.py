"""Batch normalization over several ranks: all have the statistics of the model that is saved."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from shared.distributed import World
from shared.training.keras.replicas import count_replicas, strategy_of


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
