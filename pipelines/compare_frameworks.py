"""Compare frameworks: one dataset, six trainers on the same number of nodes, an evaluation for each, and a comparison.

Each trainer is a step with its own kind of distribution: PyTorch's per process and per node, MPI for Horovod,
TensorFlow's with workers and with parameter servers. Here: ``allranks run compare_frameworks``. Of a table, too; with
``task=regression`` the comparison is by ``metric=rmse goal=minimize``.
"""

# mypy: disable-error-code="valid-type,untyped-decorator"
# The SDK reads types, ranges and descriptions from calls in the annotations, so they cannot be text either.

from typing import Any

from azure.ai.ml import Input
from azure.ai.ml.dsl import pipeline

from allranks import components, port, scale


@pipeline(display_name="Compare frameworks", experiment_name="compare_frameworks", default_compute="serverless")
def compare_frameworks(
    *,
    dataset: port("prepare_data", "dataset"),
    data: port("prepare_data", "data"),
    task: port("prepare_data", "task"),
    target: port("prepare_data", "target"),
    ignore_columns: port("prepare_data", "ignore_columns"),
    categorical_columns: port("prepare_data", "categorical_columns"),
    missing_values: port("prepare_data", "missing_values"),
    on_missing: port("prepare_data", "on_missing"),
    nodes: Input(type="integer", min=1, max=1000, description="Machines for each trainer.") = 2,
    processes_per_node: Input(
        type="integer", min=1, max=64, description="Ranks on each machine for PyTorch and Horovod: its GPUs."
    ) = 1,
    epochs: port("train_ddp", "epochs"),
    seed: port("train_ddp", "seed"),
    metric: port("compare_models", "metric"),
    goal: port("compare_models", "goal"),
) -> dict[str, Any]:
    """Trains the same model on the same data with six ways to use several machines, and names the best."""
    prepare = components.prepare_data(
        dataset=dataset,
        data=data,
        task=task,
        target=target,
        ignore_columns=ignore_columns,
        categorical_columns=categorical_columns,
        missing_values=missing_values,
        on_missing=on_missing,
    )
    rows = prepare.outputs.data

    train_ddp = components.train_ddp(data=rows, epochs=epochs, seed=seed)
    scale(train_ddp, nodes=nodes, processes_per_node=processes_per_node)
    evaluate_ddp = components.evaluate(data=rows, model=train_ddp.outputs.model)

    train_torchrun = components.train_torchrun(data=rows, epochs=epochs, seed=seed)
    scale(train_torchrun, nodes=nodes, processes_per_node=processes_per_node)
    evaluate_torchrun = components.evaluate(data=rows, model=train_torchrun.outputs.model)

    train_horovod = components.train_horovod(data=rows, epochs=epochs, seed=seed)
    scale(train_horovod, nodes=nodes, processes_per_node=processes_per_node)
    evaluate_horovod = components.evaluate(data=rows, model=train_horovod.outputs.model)

    train_horovod_keras = components.train_horovod_keras(data=rows, epochs=epochs, seed=seed)
    scale(train_horovod_keras, nodes=nodes, processes_per_node=processes_per_node)
    evaluate_horovod_keras = components.evaluate(data=rows, model=train_horovod_keras.outputs.model)

    train_multiworker = components.train_tf_multiworker(data=rows, epochs=epochs, seed=seed)
    scale(train_multiworker, nodes=nodes)
    evaluate_multiworker = components.evaluate(data=rows, model=train_multiworker.outputs.model)

    train_parameter_server = components.train_tf_parameter_server(data=rows, epochs=epochs, seed=seed)
    scale(train_parameter_server, nodes=nodes)
    evaluate_parameter_server = components.evaluate(data=rows, model=train_parameter_server.outputs.model)

    compare = components.compare_models(
        evaluation_1=evaluate_ddp.outputs.report,
        evaluation_2=evaluate_torchrun.outputs.report,
        evaluation_3=evaluate_horovod.outputs.report,
        evaluation_4=evaluate_horovod_keras.outputs.report,
        evaluation_5=evaluate_multiworker.outputs.report,
        evaluation_6=evaluate_parameter_server.outputs.report,
        names="DDP,torchrun,Horovod,Horovod Keras,MultiWorkerMirrored,ParameterServer",
        metric=metric,
        goal=goal,
    )
    return {"report": compare.outputs.report}
