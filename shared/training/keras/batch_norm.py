"""Batch normalization over several ranks: all have the statistics of the model that is saved."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from shared.distributed import World


def share_statistics(model: keras.Model, world: World) -> None:
    """Give all ranks the statistics of rank 0, which are those that are saved; every rank calls this.

    Each rank's batch normalization has seen its own rows only: Keras brings nothing of them together. What moves are
    the weights of floating point that do not train; the generators that dropout draws from rightly differ.
    """
    statistics = [
        variable.value for variable in model.non_trainable_variables if tf.as_dtype(variable.dtype).is_floating
    ]
    strategy = _strategy_of(world)
    if world.world_size == 1 or not statistics or isinstance(strategy, tf.distribute.ParameterServerStrategy):
        return  # on parameter servers there is one of each for all
    if strategy is None:
        import horovod.tensorflow as hvd

        hvd.broadcast_variables(statistics, root_rank=0)
    else:
        for variable, value in zip(statistics, _of_the_first(statistics, strategy), strict=True):
            variable.assign(value)


def _strategy_of(world: World) -> Any:
    try:
        return world.strategy
    except RuntimeError:  # Horovod has none
        return None


def _of_the_first(variables: list[Any], strategy: Any) -> list[Any]:
    """Values that variables have in the first replica of all, as tensors."""

    @tf.function
    def read() -> Any:
        here = tf.distribute.get_replica_context()
        first = tf.equal(here.replica_id_in_sync_group, 0)
        own = [tf.where(first, variable, tf.zeros_like(variable)) for variable in variables]
        return here.all_reduce(tf.distribute.ReduceOp.SUM, own)

    return [strategy.experimental_local_results(value)[0] for value in strategy.run(read)]
