"""A command step: its component's command, run by one process or by the ranks of a distribution."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from types import MappingProxyType

from allranks.local.assets import ASSET_NAME_RULE, is_asset_name
from allranks.local.bindings import PipelineScope, planned_value
from allranks.local.downloads import downloaded_inputs
from allranks.local.gang_execution import GangExecution
from allranks.local.kinds import StepKind
from allranks.local.launch import LAUNCHERS
from allranks.local.plan import PlannedStep
from allranks.local.settings import MIN_NODES_INPUT, PROCESSES_PER_NODE_INPUT
from allranks.spec import Component, Distribution, Output, Resources, Step
from allranks.spec.budget import current_budget
from allranks.spec.values import check_command_values


def plan_command(step: Step, component: Component, scope: PipelineScope, searched: Collection[str] = ()) -> PlannedStep:
    """Plan a step by its component's command; the inputs ``searched`` get their values while it runs."""
    inputs = scope.resolve_inputs(step, searched)
    distribution = step.distribution or component.distribution
    kind = None if distribution is None else distribution.type
    if kind not in LAUNCHERS:
        can = ", ".join(sorted(filter(None, LAUNCHERS)))
        scope.refuse(step, f"distribution {kind!r} cannot run here; these can: {can}, or none.")
    nodes, processes, servers = _plan_ranks(step, component, distribution, scope)
    timeout = step.timeout if step.timeout is not None else component.timeout
    variables = {**component.environment_variables, **step.environment_variables}
    # As the SDK sends them: a step's resources replace the component's.
    resources = component.resources if step.resources == Resources() else step.resources
    # A component that starts its own processes says how many in an input; torchrun is the case in point.
    own = inputs.get(PROCESSES_PER_NODE_INPUT)
    # What was written there has been checked; what comes of bindings and of where the data lies is known only now.
    texts = {key: str(value) for key, value in inputs.items() if isinstance(value, str | Path)}
    for problem in check_command_values(component, texts):
        scope.refuse(step, f"{problem.where}: {problem.message}")
    return PlannedStep(
        kind=step.kind,
        name=scope.prefix + step.name,
        component=component,
        inputs=MappingProxyType({key: planned_value(value) for key, value in inputs.items() if value is not None}),
        outputs=MappingProxyType(
            {key: _plan_output(declared, step, scope) for key, declared in component.outputs.items()}
        ),
        distribution=kind,
        nodes=nodes,
        processes=processes * own if isinstance(own, int) and own > 0 else processes,
        launched=processes,
        environment_variables=MappingProxyType({key: scope.as_text(value) for key, value in variables.items()}),
        timeout=float(text) if timeout is not None and (text := scope.as_text(timeout)) else None,
        parameter_servers=servers,
        shm_size=None if resources.shm_size is None else scope.as_text(resources.shm_size),
        docker_args=resources.docker_args,
        downloaded=downloaded_inputs(step, component, scope.pipeline.inputs),
        spare_nodes=_spare_nodes(step, component, inputs.get(MIN_NODES_INPUT), nodes, scope),
    )


def _plan_ranks(
    step: Step, component: Component, distribution: Distribution | None, scope: PipelineScope
) -> tuple[int, int, int]:
    """Nodes, processes on each, and parameter servers."""
    nodes = scope.count(step.resources.nodes or component.resources.nodes, "instance_count", step)
    processes, servers = 1, 0
    if distribution is None and nodes > 1:
        note = f"instance_count {nodes} without a distribution; one process runs, on one node."
        scope.findings.notes.append(f"{scope.prefix}{step.name}: {note}")
        nodes = 1
    if distribution is not None:
        processes = scope.count(distribution.processes_per_node, "process_count_per_instance", step)
        _check_workers(distribution, nodes, step, scope)
        if distribution.parameter_server_count:
            servers = scope.count(distribution.parameter_server_count, "parameter_server_count", step)
    if nodes * processes + servers > (budget := current_budget()).ranks:
        most = f"more than the {budget.ranks:,} that can be planned on this machine. {budget.how_to_raise('ranks')}"
        scope.refuse(step, f"{nodes:,} x {processes:,} ranks are {most}")
    return nodes, processes, servers


def _spare_nodes(step: Step, component: Component, fewest: object, nodes: int, scope: PipelineScope) -> int:
    """How many nodes a component that starts its own processes can lose: those beyond its input ``min_nodes``."""
    if not isinstance(fewest, int) or PROCESSES_PER_NODE_INPUT not in component.inputs:
        return 0
    if fewest > nodes:
        scope.refuse(step, f"{MIN_NODES_INPUT} {fewest} is more than instance_count {nodes}; give at most {nodes}.")
    return max(0, nodes - fewest)


def _check_workers(distribution: Distribution, nodes: int, step: Step, scope: PipelineScope) -> None:
    """Azure ML starts one worker on each node; a worker_count that says otherwise never starts."""
    if distribution.worker_count is None:
        return
    workers = scope.count(distribution.worker_count, "worker_count", step)
    if workers != nodes:
        remedy = "leave worker_count out, or make them equal."
        scope.refuse(step, f"worker_count {workers} differs from instance_count {nodes}; {remedy}")


def _plan_output(declared: Output, step: Step, scope: PipelineScope) -> Output:
    """A declared output with what the step and its pipelines say of it."""
    output = scope.output_settings(step, declared)
    if output.asset_name is not None and not is_asset_name(output.asset_name):
        scope.refuse(step, f"output {declared.name}: {output.asset_name!r} is no name for an asset: {ASSET_NAME_RULE}.")
    return output


STEP_KIND = StepKind(plan_command, GangExecution)
