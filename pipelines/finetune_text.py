"""Text classification with Hugging Face's Trainer: prepare a text, train or fine-tune a model, measure it.

Here, without an Azure account: ``allranks run finetune_text``. Its defaults say which of six packages of Python's
standard library a passage is from, with a small model that begins with random weights. In a workspace, with a
model of yours and its tokenizer: ``ml_client.jobs.create_or_update(finetune_text(base_model=...))``.
"""

# mypy: disable-error-code="valid-type,untyped-decorator"
# The SDK reads types, ranges and descriptions from calls in the annotations, so they cannot be text either.

from typing import Any

from azure.ai.ml import Input
from azure.ai.ml.dsl import pipeline

from allranks import components, port, scale


@pipeline(display_name="Fine-tune text", experiment_name="finetune_text", default_compute="serverless")
def finetune_text(
    *,
    dataset: port("prepare_text", "dataset"),
    data: port("prepare_text", "data"),
    vocabulary: port("prepare_text", "vocabulary", optional=False) = 4096,
    sequence_length: port("prepare_text", "sequence_length"),
    nodes: Input(type="integer", min=1, max=1000, description="Machines to train on.") = 1,
    processes_per_node: Input(type="integer", min=1, max=64, description="Ranks on each machine: its GPUs.") = 2,
    base_model: port("train_transformers", "base_model"),
    epochs: port("train_transformers", "epochs"),
    batch_size: port("train_transformers", "batch_size") = 16,
    accumulation_steps: port("train_transformers", "accumulation_steps"),
    learning_rate: port("train_transformers", "learning_rate") = 0.001,
    precision: port("train_transformers", "precision"),
    sharding: port("train_transformers", "sharding"),
    seed: port("train_transformers", "seed"),
) -> dict[str, Any]:
    """Prepares passages of text with classes, trains a classifier with Hugging Face's Trainer, and evaluates it."""
    prepare = components.prepare_text(
        task="text_classification",
        dataset=dataset,
        data=data,
        tokenizer=base_model,
        vocabulary=vocabulary,
        sequence_length=sequence_length,
    )

    train = components.train_transformers(
        data=prepare.outputs.data,
        base_model=base_model,
        epochs=epochs,
        batch_size=batch_size,
        accumulation_steps=accumulation_steps,
        learning_rate=learning_rate,
        precision=precision,
        sharding=sharding,
        seed=seed,
    )
    train.inputs.data.mode = "download"  # read in each epoch: docs/data.md says when another mode fits
    scale(train, nodes=nodes, processes_per_node=processes_per_node)

    evaluate = components.evaluate(data=prepare.outputs.data, model=train.outputs.model)
    scale(evaluate, processes_per_node=processes_per_node)

    return {"model": train.outputs.model, "report": evaluate.outputs.report}
