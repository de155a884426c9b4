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

from allranks import components, scale


@pipeline(display_name="Fine-tune text", experiment_name="finetune_text", default_compute="serverless")
def finetune_text(
    *,
    dataset: Input(
        type="string",
        enum=["stdlib", "files", "jsonl", "csv", "parquet"],
        description="What is read. stdlib is a built-in sample of about 9 MB: the sources of Python's standard library,"
        " without its tests; its classes are six of its packages. The others read data. jsonl and csv may "
        "be gzipped. A large file is shared by nodes and cores if it is a plain jsonl or a parquet; give "
        "csv and gzipped files as several.",
    ) = "stdlib",
    data: Input(
        type="uri_folder",
        optional=True,
        description="Folder with your texts. files: one document in each file, and for text_classification one folder "
        "for each class. jsonl, csv, parquet: one document in each row of one or several files. Leave empty"
        " for stdlib.",
    ) = None,
    vocabulary: Input(
        type="integer",
        min=300,
        max=1048576,
        description="Without a tokenizer: learn one of so many tokens from the train split (byte-level BPE), and keep "
        "it in the dataset. A language model learns much faster on such tokens than on bytes.",
    ) = 4096,
    sequence_length: Input(
        type="integer",
        min=2,
        max=1048576,
        description="language_modeling: tokens that are predicted in each row. text_classification: the most tokens of "
        "a passage, with the tokenizer's special ones; longer documents are cut into passages of equal "
        "length, each of the document's class.",
    ) = 256,
    nodes: Input(type="integer", min=1, max=1000, description="Machines to train on.") = 1,
    processes_per_node: Input(type="integer", min=1, max=64, description="Ranks on each machine: its GPUs.") = 2,
    base_model: Input(
        type="uri_folder",
        optional=True,
        description="Folder with the model to go on from: config.json, model.safetensors and tokenizer.json, as "
        "save_pretrained writes them. A head for the data's classes is new if the model has none. Leave it "
        "empty to begin with random weights.",
    ) = None,
    epochs: Input(
        type="integer",
        min=1,
        description="Passes over the training rows.",
    ) = 3,
    batch_size: Input(
        type="integer",
        min=1,
        description="Rows in one optimizer step, over all GPUs together. Must be a multiple of GPUs x "
        "accumulation_steps; the last partial batch of an epoch is left out.",
    ) = 16,
    accumulation_steps: Input(
        type="integer",
        min=1,
        description="Parts in which each GPU computes its share of a batch, one after the other, to use less memory.",
    ) = 1,
    learning_rate: Input(
        type="number",
        min=0,
        description="Highest learning rate, reached after the warm-up. The default suits a trained model; one that "
        "begins with random weights wants ten times as much or more.",
    ) = 0.001,
    precision: Input(
        type="string",
        enum=["fp32", "bf16", "fp16"],
        description="Arithmetic of the forward and backward pass. bf16 is the best choice on recent GPUs; fp16 scales "
        "the loss and needs a GPU.",
    ) = "fp32",
    sharding: Input(
        type="string",
        enum=["none", "fsdp", "deepspeed"],
        description="How a model that is too large for one GPU is divided among all. fsdp: weights, gradients and the "
        "optimizer's states, by PyTorch. deepspeed: gradients and states, by ZeRO stage 2. The result does "
        "not change.",
    ) = "none",
    seed: Input(
        type="integer",
        min=0,
        max=4294967295,
        description="Seed of the initial weights and of the order of the rows.",
    ) = 0,
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
    scale(train, nodes=nodes, processes_per_node=processes_per_node)

    evaluate = components.evaluate(data=prepare.outputs.data, model=train.outputs.model)
    scale(evaluate, processes_per_node=processes_per_node)

    return {"model": train.outputs.model, "report": evaluate.outputs.report}
