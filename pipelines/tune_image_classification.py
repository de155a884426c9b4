"""Tuning: prepare a dataset, try learning rates, optimizers and batch sizes, evaluate the best model on the test split.

Here, without an Azure account: ``allranks run tune_image_classification epochs=5``; the page of the run shows every
trial. Each trial runs on one node with one rank, as train_ddp says by itself: the SDK lets a sweep set neither. On this
machine ``--scale train=1x2`` gives each trial two ranks.
"""

# mypy: disable-error-code="valid-type,untyped-decorator"
# The SDK reads types, ranges and descriptions from calls in the annotations, so they cannot be text either.

from typing import Any

from azure.ai.ml.dsl import pipeline
from azure.ai.ml.sweep import BanditPolicy, Choice, LogUniform, RandomSamplingAlgorithm

from allranks import components, port


@pipeline(
    display_name="Tune image classification",
    experiment_name="tune_image_classification",
    default_compute="serverless",
)
def tune_image_classification(
    *,
    dataset: port("prepare_data", "dataset"),
    data: port("prepare_data", "data"),
    image_size: port("prepare_data", "image_size"),
    architecture: port("train_ddp", "architecture"),
    model_code: port("train_ddp", "model_code"),
    epochs: port("train_ddp", "epochs"),
    seed: port("train_ddp", "seed"),
) -> dict[str, Any]:
    """Prepares images, searches learning rate, optimizer and batch size, and evaluates the best classifier."""
    prepare = components.prepare_data(dataset=dataset, data=data, image_size=image_size)

    trial = components.train_ddp(
        data=prepare.outputs.data,
        architecture=architecture,
        model_code=model_code,
        epochs=epochs,
        seed=seed,
        learning_rate=LogUniform(min_value=-8.0, max_value=-3.5),  # exponents of e: 0.0003 to 0.03
        optimizer=Choice(["adam", "adamw"]),
        batch_size=Choice([32, 64, 128]),
    )
    train = trial.sweep(
        primary_metric="validation_accuracy",
        goal="maximize",
        sampling_algorithm=RandomSamplingAlgorithm(rule="sobol", seed=0),
        early_termination_policy=BanditPolicy(slack_factor=0.2, evaluation_interval=1, delay_evaluation=3),
        max_total_trials=8,
        max_concurrent_trials=2,
        timeout=7200,
    )
    train.inputs.data.mode = "download"  # read in each epoch: docs/data.md says when another mode fits

    evaluate = components.evaluate(data=prepare.outputs.data, model=train.outputs.model)

    return {"model": train.outputs.model, "report": evaluate.outputs.report}
