"""A language model: prepare a text, train a decoder from scratch with FSDP, measure it in bits for each byte.

Here, without an Azure account: ``allranks run language_model``. Its defaults train on the sources of Python's standard
library for some minutes on two cores, and end below what gzip needs for the same text. In a workspace, with GPUs:
``ml_client.jobs.create_or_update(language_model(data=..., dataset="files", layers=12, width=768, heads=12))``.
"""

# mypy: disable-error-code="valid-type,untyped-decorator"
# The SDK reads types, ranges and descriptions from calls in the annotations, so they cannot be text either.

from typing import Any

from azure.ai.ml import Input
from azure.ai.ml.dsl import pipeline

from allranks import components, port, scale


@pipeline(display_name="Language model", experiment_name="language_model", default_compute="serverless")
def language_model(
    *,
    dataset: port("prepare_text", "dataset"),
    data: port("prepare_text", "data"),
    vocabulary: port("prepare_text", "vocabulary", optional=False) = 4096,
    sequence_length: port("prepare_text", "sequence_length") = 128,
    nodes: Input(type="integer", min=1, max=1000, description="Machines to train on.") = 1,
    processes_per_node: Input(type="integer", min=1, max=64, description="Ranks on each machine: its GPUs.") = 2,
    layers: port("train_fsdp", "layers") = 2,
    width: port("train_fsdp", "width"),
    heads: port("train_fsdp", "heads"),
    epochs: port("train_fsdp", "epochs"),
    max_steps: port("train_fsdp", "max_steps"),
    batch_size: port("train_fsdp", "batch_size") = 32,
    learning_rate: port("train_fsdp", "learning_rate") = 0.004,
    precision: port("train_fsdp", "precision"),
    seed: port("train_fsdp", "seed"),
) -> dict[str, Any]:
    """Prepares a text, trains a language model on it with PyTorch FSDP, and evaluates it."""
    prepare = components.prepare_text(
        dataset=dataset, data=data, vocabulary=vocabulary, sequence_length=sequence_length
    )

    train = components.train_fsdp(
        data=prepare.outputs.data,
        layers=layers,
        width=width,
        heads=heads,
        tie_embeddings="true",  # most parameters of a small model are its tokens'
        epochs=epochs,
        max_steps=max_steps,
        batch_size=batch_size,
        learning_rate=learning_rate,
        schedule="linear",
        precision=precision,
        seed=seed,
    )
    train.inputs.data.mode = "download"  # read in each epoch: docs/data.md says when another mode fits
    scale(train, nodes=nodes, processes_per_node=processes_per_node)

    evaluate = components.evaluate(data=prepare.outputs.data, model=train.outputs.model)
    scale(evaluate, processes_per_node=processes_per_node)

    return {"model": train.outputs.model, "report": evaluate.outputs.report}
