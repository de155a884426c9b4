"""Tuning: prepare a dataset, try learning rates, optimizers and batch sizes, evaluate the best model on the test split.

Here, without an Azure account: ``allranks run tune_image_classification epochs=5``; the page of the run shows every
trial. Each trial runs on one node with one rank, as train_ddp says by itself: the SDK lets a sweep set neither. On this
machine ``--scale train=1x2`` gives each trial two ranks.
"""

# mypy: disable-error-code="valid-type,untyped-decorator"
# The SDK reads types, ranges and descriptions from calls in the annotations, so they cannot be text either.

from typing import Any

from azure.ai.ml import Input
from azure.ai.ml.dsl import pipeline
from azure.ai.ml.sweep import BanditPolicy, Choice, LogUniform, RandomSamplingAlgorithm

from allranks import components


@pipeline(
    display_name="Tune image classification",
    experiment_name="tune_image_classification",
    default_compute="serverless",
)
def tune_image_classification(
    *,
    dataset: Input(
        type="string",
        enum=["digits", "image_folder", "cifar", "idx", "npy", "csv", "parquet"],
        description="What is read. digits is a built-in sample of 1,797 handwritten digits of 8x8 pixels; the others "
        "read data. All files are taken together and split anew, so a test batch of CIFAR or MNIST is not kept "
        "apart.",
    ) = "digits",
    data: Input(
        type="uri_folder",
        optional=True,
        description="Folder with your files. image_folder: one folder of images for each class. cifar: the unpacked "
        "batches (data_batch_1 and so on). idx: MNIST's files, gzipped or not. npy: x.npy with the rows and "
        "y.npy with their labels or targets. csv, parquet: one table, in one file or several. Leave empty for"
        " digits.",
    ) = None,
    image_size: Input(
        type="integer",
        optional=True,
        min=1,
        max=4096,
        description="For image_folder, cifar and idx: side in pixels to which images are brought, scaled and then "
        "cropped around the centre. Needed when they differ in size.",
    ) = None,
    architecture: Input(
        type="string",
        description='mlp, resnet, vit, or FILE.py:FUNCTION in the folder "model_code". Tables take mlp, since resnet '
        "and vit are for images. The function takes (input_shape, num_outputs) and returns a torch.nn.Module for "
        "channels-first batches.",
    ) = "mlp",
    model_code: Input(
        type="uri_folder",
        optional=True,
        description='Folder with your model\'s code, when "architecture" is FILE.py:FUNCTION; otherwise it has no '
        "effect.",
    ) = None,
    epochs: Input(type="integer", min=1, description="Passes over the training rows.") = 15,
    seed: Input(
        type="integer",
        min=0,
        max=4294967295,
        description="Seed of the initial weights and of the order of the rows.",
    ) = 0,
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

    evaluate = components.evaluate(data=prepare.outputs.data, model=train.outputs.model)

    return {"model": train.outputs.model, "report": evaluate.outputs.report}
