"""Validation on all replicas of one TensorFlow process: each row counts once, and the model is the one that is saved."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.components.training import write_digits
from tests.helpers import run_ranks

pytestmark = pytest.mark.slow  # TensorFlow takes seconds to be imported

THREE_REPLICAS = """
    import json
    from pathlib import Path
    from types import SimpleNamespace
    import tensorflow as tf
    import keras
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 3)
    from shared.data import Dataset
    from shared.data.dataset.index import read_index
    from shared.training.core.batch_plan import BatchPlan
    from shared.training.keras.evaluation import SplitEvaluation

    devices = set()

    class Seen(keras.layers.Layer):
        def call(self, rows):
            devices.add(tf.constant(0).device[-5:])
            return tf.cast(rows, "float32")

    class Alone(SimpleNamespace):
        @property
        def strategy(self):
            raise RuntimeError

    folder = Path.cwd()
    data, strategy = Dataset(folder, read_index(folder)), tf.distribute.MirroredStrategy([f"CPU:{n}" for n in range(3)])
    keras.utils.set_random_seed(0)
    with strategy.scope():
        model = keras.Sequential(
            [keras.Input((8, 8, 1)), Seen(), keras.layers.Flatten(), keras.layers.BatchNormalization(),
             keras.layers.Dense(10)]
        )
    devices.clear()

    def measure(world):
        return SplitEvaluation(data, "validation", world, BatchPlan(8, 1, 1), None).measure(model)

    world = SimpleNamespace(rank=0, world_size=1, sum=lambda sums, name, timeout: sums)
    many = measure(SimpleNamespace(**vars(world), strategy=strategy))
    used = sorted(devices)
    print(json.dumps([used, many, measure(Alone(**vars(world)))]))
"""


def test_three_replicas_measure_what_one_does_with_rows_that_do_not_divide(tmp_path: Path) -> None:
    write_digits(tmp_path, rows=300)
    (done,) = run_ranks(THREE_REPLICAS, processes=1, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    used, many, one = json.loads(done.stdout.splitlines()[-1])
    assert used == ["CPU:0", "CPU:1", "CPU:2"]
    assert many["accuracy"] == one["accuracy"]
    assert many["loss"] == pytest.approx(one["loss"], rel=1e-6)
