"""The same as ``image_classification``, with torchrun: Azure ML starts one process on each node, torchrun its ranks.

Choose this one where the number of ranks of a node has to be an input, or where your cluster's tools expect torchrun.
"""

# mypy: disable-error-code="valid-type,untyped-decorator"
# The SDK reads types, ranges and descriptions from calls in the annotations, so they cannot be text either.

from typing import Any

from azure.ai.ml import Input
from azure.ai.ml.dsl import pipeline

from allranks import components, scale


@pipeline(
    display_name="Image classification (torchrun)",
    experiment_name="image_classification_torchrun",
    default_compute="serverless",
)
def image_classification_torchrun(
    *,
    dataset: Input(
        type="string",
        enum=["digits", "image_folder", "cifar", "idx", "npy", "csv", "parquet"],
        description="What is read. digits is a built-in sample of 1,797 handwritten digits of 8x8 pixels; the others "
        "read data. All files are taken together and split anew, so a test batch of CIFAR or MNIST is not kept apart.",
    ) = "digits",
    data: Input(
        type="uri_folder",
        optional=True,
        description="Folder with your files. image_folder: one folder of images for each class. cifar: the unpacked "
        "batches (data_batch_1 and so on). idx: MNIST's files, gzipped or not. npy: x.npy with the rows and y.npy with "
        "their labels or targets. csv, parquet: one table, in one file or several. Leave empty for digits.",
    ) = None,
    nodes: Input(type="integer", min=1, max=1000, description="Machines to train on.") = 2,
    processes_per_node: Input(
        type="integer",
        min=1,
        max=64,
        description="Ranks that torchrun starts on each node; the number of its GPUs.",
    ) = 2,
    architecture: Input(
        type="string",
        description='mlp, resnet, vit, or FILE.py:FUNCTION in the folder "model_code". Tables take mlp, since resnet '
        "and vit are for images. The function takes (input_shape, num_outputs) and returns a torch.nn.Module for "
        "channels-first batches.",
    ) = "mlp",
    epochs: Input(type="integer", min=1, description="Passes over the training rows.") = 15,
    batch_size: Input(
        type="integer",
        min=1,
        description="Rows in one optimizer step, over all GPUs together. Must be a multiple of GPUs x "
        "accumulation_steps; the last partial batch of an epoch is left out.",
    ) = 64,
    learning_rate: Input(
        type="number",
        min=0,
        description="Highest learning rate, reached after the warm-up.",
    ) = 0.006,
    seed: Input(
        type="integer",
        min=0,
        max=4294967295,
        description="Seed of the initial weights and of the order of the rows.",
    ) = 0,
) -> dict[str, Any]:
    """Prepares images, trains a classifier on several nodes with torchrun, and evaluates it."""
    prepare = components.prepare_data(dataset=dataset, data=data)

    train = components.train_torchrun(
        data=prepare.outputs.data,
        architecture=architecture,
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        seed=seed,
    )
    scale(train, nodes=nodes, processes_per_node=processes_per_node)

    evaluate = components.evaluate(data=prepare.outputs.data, model=train.outputs.model)
    scale(evaluate, processes_per_node=processes_per_node)

    return {"model": train.outputs.model, "report": evaluate.outputs.report}
