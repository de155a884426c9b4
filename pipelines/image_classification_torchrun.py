"""The same as ``image_classification``, with torchrun: Azure ML starts one process on each node, torchrun its ranks.

Choose this one where the number of ranks of a node has to be an input, or where your cluster's tools expect torchrun.
"""

# mypy: disable-error-code="valid-type,untyped-decorator"
# The SDK reads types, ranges and descriptions from calls in the annotations, so they cannot be text either.

from typing import Any

from azure.ai.ml import Input
from azure.ai.ml.dsl import pipeline

from allranks import components, port, scale


@pipeline(
    display_name="Image classification (torchrun)",
    experiment_name="image_classification_torchrun",
    default_compute="serverless",
)
def image_classification_torchrun(
    *,
    dataset: port("prepare_data", "dataset"),
    data: port("prepare_data", "data"),
    nodes: Input(type="integer", min=1, max=1000, description="Machines to train on.") = 2,
    processes_per_node: Input(
        type="integer",
        min=1,
        max=64,
        description="Ranks that torchrun starts on each node; the number of its GPUs.",
    ) = 2,
    architecture: port("train_torchrun", "architecture"),
    epochs: port("train_torchrun", "epochs"),
    batch_size: port("train_torchrun", "batch_size"),
    learning_rate: port("train_torchrun", "learning_rate"),
    seed: port("train_torchrun", "seed"),
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
    train.inputs.data.mode = "download"  # read in each epoch: docs/data.md says when another mode fits
    scale(train, nodes=nodes, processes_per_node=processes_per_node)

    evaluate = components.evaluate(data=prepare.outputs.data, model=train.outputs.model)
    scale(evaluate, processes_per_node=processes_per_node)

    return {"model": train.outputs.model, "report": evaluate.outputs.report}
