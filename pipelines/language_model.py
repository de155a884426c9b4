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

from allranks import components, scale


@pipeline(display_name="Language model", experiment_name="language_model", default_compute="serverless")
def language_model(
    *,
    dataset: Input(
        type="string",
        enum=["stdlib", "files", "jsonl", "csv", "parquet"],
        description="What is read. stdlib is a built-in sample of about 9 MB: the sources of Python's standard "
        "library, without its tests; its classes are six of its packages. The others read data. jsonl and csv may be "
        "gzipped. A large file is shared by nodes and cores if it is a plain jsonl or a parquet; give csv and "
        "gzipped files as several.",
    ) = "stdlib",
    data: Input(
        type="uri_folder",
        optional=True,
        description="Folder with your texts. files: one document in each file, and for text_classification one "
        "folder for each class. jsonl, csv, parquet: one document in each row of one or several files. Leave empty "
        "for stdlib.",
    ) = None,
    vocabulary: Input(
        type="integer",
        min=300,
        max=1048576,
        description="Without a tokenizer: learn one of so many tokens from the train split (byte-level BPE), and "
        "keep it in the dataset. A language model learns much faster on such tokens than on bytes.",
    ) = 4096,
    sequence_length: Input(
        type="integer",
        min=2,
        max=1048576,
        description="language_modeling: tokens that are predicted in each row. text_classification: the most tokens "
        "of a passage, with the tokenizer's special ones; longer documents are cut into passages of equal length, "
        "each of the document's class.",
    ) = 128,
    nodes: Input(type="integer", min=1, max=1000, description="Machines to train on.") = 1,
    processes_per_node: Input(type="integer", min=1, max=64, description="Ranks on each machine: its GPUs.") = 2,
    layers: Input(
        type="integer",
        min=1,
        description="Blocks of the model, each attention and a perceptron. A multiple of pipeline_parallel.",
    ) = 2,
    width: Input(
        type="integer",
        min=2,
        description="Size of a token's vector, a multiple of twice the heads. 4 layers of 128 have 0.8 million "
        "parameters, 12 of 768 have 85 million, 32 of 4096 have 6.5 billion; the tokens' own come on top.",
    ) = 128,
    heads: Input(
        type="integer",
        min=1,
        description="Heads of the attention. A multiple of tensor_parallel.",
    ) = 4,
    epochs: Input(type="integer", min=1, description="Passes over the training text.") = 1,
    max_steps: Input(
        type="integer",
        min=0,
        description="End after so many steps, though the epochs are not over; the learning rate falls over these. 0 "
        "does not. A run that goes on from its checkpoints with more steps makes the rest of the epoch that was cut "
        "short, in the same order.",
    ) = 0,
    batch_size: Input(
        type="integer",
        min=1,
        description="Sequences in one optimizer step, over all GPUs together. Must be a multiple of the "
        "data-parallel degree (GPUs / tensor_parallel / pipeline_parallel) x accumulation_steps; the last partial "
        "batch of an epoch is left out.",
    ) = 32,
    learning_rate: Input(
        type="number",
        min=0,
        description="Highest learning rate, reached after the warm-up.",
    ) = 0.004,
    precision: Input(
        type="string",
        enum=["fp32", "bf16", "fp64"],
        description="Arithmetic of the forward and backward pass. With bf16, the best choice on recent GPUs, each "
        "rank computes in bf16 and keeps its parts of parameters, gradients and optimizer state in fp32. fp64 is for "
        "exact comparisons. fp16 is not offered: it would need its loss scaled, and bf16 does not.",
    ) = "fp32",
    seed: Input(
        type="integer",
        min=0,
        max=4294967295,
        description="Seed of the initial weights and of the order of the rows.",
    ) = 0,
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
    scale(train, nodes=nodes, processes_per_node=processes_per_node)

    evaluate = components.evaluate(data=prepare.outputs.data, model=train.outputs.model)
    scale(evaluate, processes_per_node=processes_per_node)

    return {"model": train.outputs.model, "report": evaluate.outputs.report}
