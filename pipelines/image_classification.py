"""Image classification: prepare a dataset, train on every rank of every node, evaluate on the test split.

Here, without an Azure account: ``allranks run image_classification epochs=5``, from the YAML beside this file, or after
a change ``allranks run pipelines/image_classification.py:image_classification``. In a workspace:
``ml_client.jobs.create_or_update(image_classification(epochs=5))``.
"""

# mypy: disable-error-code="valid-type,untyped-decorator"
# The SDK reads types, ranges and descriptions from calls in the annotations, so they cannot be text either.

from typing import Any

from azure.ai.ml import Input
from azure.ai.ml.dsl import pipeline

from allranks import components, port, scale


@pipeline(display_name="Image classification", experiment_name="image_classification", default_compute="serverless")
def image_classification(
    *,
    dataset: port("prepare_data", "dataset"),
    data: port("prepare_data", "data"),
    image_size: port("prepare_data", "image_size"),
    nodes: Input(type="integer", min=1, max=1000, description="Machines to train on.") = 2,
    processes_per_node: Input(type="integer", min=1, max=64, description="Ranks on each machine: its GPUs.") = 2,
    architecture: port("train_ddp", "architecture"),
    model_code: port("train_ddp", "model_code"),
    epochs: port("train_ddp", "epochs"),
    batch_size: port("train_ddp", "batch_size"),
    accumulation_steps: port("train_ddp", "accumulation_steps"),
    optimizer: port("train_ddp", "optimizer"),
    learning_rate: port("train_ddp", "learning_rate"),
    precision: port("train_ddp", "precision"),
    seed: port("train_ddp", "seed"),
) -> dict[str, Any]:
    """Prepares images, trains a classifier on several nodes with PyTorch DDP, and evaluates it."""
    prepare = components.prepare_data(dataset=dataset, data=data, image_size=image_size)

    train = components.train_ddp(
        data=prepare.outputs.data,
        architecture=architecture,
        model_code=model_code,
        epochs=epochs,
        batch_size=batch_size,
        accumulation_steps=accumulation_steps,
        optimizer=optimizer,
        learning_rate=learning_rate,
        precision=precision,
        seed=seed,
    )
    train.inputs.data.mode = "download"  # read in each epoch: docs/data.md says when another mode fits
    scale(train, nodes=nodes, processes_per_node=processes_per_node)

    evaluate = components.evaluate(data=prepare.outputs.data, model=train.outputs.model)
    scale(evaluate, processes_per_node=processes_per_node)

    return {"model": train.outputs.model, "report": evaluate.outputs.report}
