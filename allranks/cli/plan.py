"""``allranks plan``: what a training will take on 1 to 1,024 nodes, and cost, before a node is paid for."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from allranks.cli.inputs import add_input_arguments, parse_each, parse_scale, parse_value
from allranks.cli.target import folder_document, load_target
from allranks.cli.text import aligned_rows, name_suggestion, print_output
from allranks.errors import SpecError, UnknownNameError, UsageError
from allranks.files import write_text
from allranks.local.folders import DEFAULT_HOME, RunsHome
from allranks.local.settings import apply_scale, apply_values, named_scale
from allranks.planning.failures import NODE_HOURS_BETWEEN_FAILURES, RESTART_SECONDS, SAVE_SECONDS, FailureRates
from allranks.planning.forecast import MOST_NODES, ClusterPlan, NodeForecast, counted_nodes, forecast_nodes
from allranks.planning.links import network_of_size
from allranks.planning.measured_runs import MeasuredTraining, measured_training
from allranks.planning.picture import plan_picture
from allranks.planning.prices import NodePrice, price_from_table
from allranks.planning.training_facts import TrainingFacts, training_steps
from allranks.sizes import VMSize, all_sizes, find_size
from allranks.wording import duration_words, size_words

HELP = "predict the step, the time and the cost of a training on 1 to 1,024 nodes of a VM size"

_GIVE = "Give --samples-per-second or --sample-seconds of one GPU, --run RUN that has trained it, or --measure."

_PRICED_ROWS = 1e6
"""For which a price is shown where nobody says how many there are."""
_NOT_SAID = "not said"

_ABOVE = (
    *("samples_per_second", "sample_seconds", "step_seconds", "times_faster", "weights", "link_gigabits"),
    *("processes", "samples", "mtbf_hours"),
)
"""What has to be above 0."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_input_arguments(parser)
    parser.add_argument("--size", metavar="VM", required=True, help="the VM size of the nodes: allranks cluster sizes")
    nodes = "numbers of nodes; a single N means 1, 2, 4 and so on up to it (default: 64)"
    parser.add_argument("--nodes", metavar="N", type=int, nargs="+", default=[64], help=nodes)
    parser.add_argument("--step", metavar="STEP", default="", help="the step that trains, where there are several")
    _add_compute(parser)
    model = parser.add_argument_group("the model and the links", "default: what the target, a run and the size say")
    model.add_argument("--weights", metavar="N", type=float, help="numbers in the model, such as 7e9")
    model.add_argument("--link-gigabits", metavar="N", type=float, help="Gb/s of a node to others")
    model.add_argument("--processes", metavar="N", type=int, help="ranks on each node (default: its GPUs)")
    model.add_argument("--weak", action="store_true", help="batch_size is that of one node, and grows with the nodes")
    money = parser.add_argument_group("time and cost")
    money.add_argument("--samples", metavar="N", type=float, help="rows to train on, all epochs (default: the run's)")
    money.add_argument("--price", metavar="P", type=float, help="of a node for an hour, in any currency")
    money.add_argument("--prices", metavar="FILE", help="a table of prices: docs/plan.md")
    failures = parser.add_argument_group("failures")
    hours = f"hours between two failures of one node (default: {NODE_HOURS_BETWEEN_FAILURES:g}, as Llama 3 had)"
    failures.add_argument("--mtbf-hours", metavar="H", type=float, default=NODE_HOURS_BETWEEN_FAILURES, help=hours)
    again = f"from a failure to the next step (default: {RESTART_SECONDS:g})"
    failures.add_argument("--restart-seconds", metavar="S", type=float, default=RESTART_SECONDS, help=again)
    still = f"that a checkpoint halts the training (default: the run's, or {SAVE_SECONDS:g})"
    failures.add_argument("--save-seconds", metavar="S", type=float, help=still)
    parser.add_argument("--picture", metavar="FILE.svg", help="draw where the time of a step goes")
    parser.add_argument("--runs-dir", metavar="DIR", default=DEFAULT_HOME, help=f"default: {DEFAULT_HOME}")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def _add_compute(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("the compute of one rank", "one of these")
    compute = group.add_mutually_exclusive_group()
    compute.add_argument("--samples-per-second", metavar="N", type=float, help="rows that one GPU trains on alone")
    compute.add_argument("--sample-seconds", metavar="S", type=float, help="that one GPU computes for a row")
    compute.add_argument("--step-seconds", metavar="S", type=float, help="that a GPU computes for a step on one node")
    compute.add_argument("--run", metavar="RUN", help="as a run has measured it: its id, or latest")
    compute.add_argument("--measure", action="store_true", help="run the target here first, on one rank")
    faster = "by how much a GPU of the size is faster than a rank of the run (default: 1)"
    group.add_argument("--times-faster", metavar="X", type=float, default=1.0, help=faster)


@dataclass(frozen=True, slots=True)
class PlannedTraining:
    """What was asked, and where each thing that it stands on is from."""

    target: str
    size: VMSize
    facts: TrainingFacts
    plan: ClusterPlan
    price: NodePrice | None
    sources: dict[str, str]


def run(args: argparse.Namespace) -> int:
    """Check everything, predict, print."""
    nodes = _asked_nodes(args.nodes)
    _check_numbers(args)
    size = _asked_size(args.size)
    planned = _planned(args, size)
    forecasts = forecast_nodes(planned.plan, nodes)
    if args.picture:
        title = f"{planned.facts.step} of {planned.target} on {size.name}: where the time of a step goes"
        write_text(_picture_file(args.picture), plan_picture(title, forecasts))
    if args.json:
        print_output(_document(planned, forecasts))
    else:
        print("\n".join(_lines(planned, forecasts)))
    return 0


def _asked_nodes(asked: Sequence[int]) -> list[int]:
    for count in asked:
        if not 1 <= count <= MOST_NODES:
            raise UsageError(f"--nodes {count} is not from 1 to {MOST_NODES:,}.", "For example: --nodes 64.")
    return counted_nodes(asked[0]) if len(asked) == 1 else sorted(set(asked))


def _check_numbers(args: argparse.Namespace) -> None:
    """Refuse what is no number above 0, before anything is read."""
    for name in (*_ABOVE, "price", "restart_seconds", "save_seconds"):
        value, option = getattr(args, name), f"--{name.replace('_', '-')}"
        if value is None or (value == math.inf and name == "mtbf_hours"):
            continue
        if not math.isfinite(value) or value < 0 or value > 1e18 or (value == 0 and name in _ABOVE):
            rule = "a number above 0" if name in _ABOVE else "a number from 0"
            raise UsageError(f"{option} {value:g} is not {rule}, up to 1e18.", "See `allranks plan --help`.")
    if args.price is not None and args.prices:
        raise UsageError("--price and --prices both name a price.", "Leave one of them out.")


def _asked_size(name: str) -> VMSize:
    size = find_size(name) or find_size(f"Standard_{name}")
    if size is None:
        close = name_suggestion(name.lower(), all_sizes())
        spelt = find_size(close.split("'")[1]) if "'" in close else None
        meant = f" (did you mean {spelt.name!r}?)" if spelt else ""
        raise UnknownNameError(f"{name!r} is no VM size that is known here{meant}.", "See `allranks cluster sizes`.")
    return size


def _picture_file(name: str) -> Path:
    file = Path(name)
    if file.suffix != ".svg":
        raise UsageError(f"--picture {name}: it is an SVG.", f"Write {file.with_suffix('.svg')}.")
    if not file.absolute().parent.is_dir():
        raise UsageError(
            f"--picture {name}: there is no folder {str(file.parent)!r}.", "Make it, or name another file."
        )
    return file


def _planned(args: argparse.Namespace, size: VMSize) -> PlannedTraining:
    """All that the prediction stands on; raises UsageError for what nobody knows."""
    target = folder_document(args.target)
    facts = _training(args, target)
    measured = _measured(args, target, facts)
    ranks = args.processes or size.gpus or facts.machines.processes or 1
    network = network_of_size(size, ranks, args.link_gigabits)
    if network is None:
        message = f"what {size.name} has between its nodes is not known."
        raise UsageError(message, "Give --link-gigabits, from the page that `allranks cluster sizes --json` names.")
    weights, whose = _weights(args, facts, measured)
    seconds, how = _sample_seconds(args, facts, measured, ranks)
    price = _price(args, size)
    save = args.save_seconds if args.save_seconds is not None else (measured and measured.save_seconds) or SAVE_SECONDS
    plan = ClusterPlan(
        sample_seconds=seconds,
        batch_size=facts.batch_size,
        model=facts.exchange(weights),
        network=network,
        grows=args.weak,
        accumulation=facts.accumulation,
        model_groups=facts.groups[0],
        pipeline_stages=facts.groups[1],
        samples=args.samples or (measured.samples if measured else None) or (_PRICED_ROWS if price else None),
        price=price.amount if price else None,
        failures=FailureRates(args.mtbf_hours, args.restart_seconds, save),
    )
    rows = "given" if args.samples else f"run {measured.run_id}" if measured and measured.samples else _NOT_SAID
    return PlannedTraining(target, size, facts, plan, price, {"compute": how, "weights": whose, "samples": rows})


def _training(args: argparse.Namespace, target: str) -> TrainingFacts:
    """The step that trains; raises UsageError where it is none or which is not said."""
    pipeline, problems = apply_values(load_target(target), parse_each("", parse_value, args.values))
    scale = named_scale(pipeline, parse_each("--scale", parse_scale, args.scale))
    pipeline = apply_scale(pipeline, scale)
    if errors := [problem for problem in problems if problem.severity == "error"]:
        raise SpecError(errors)
    found = {one.step: one for one in training_steps(pipeline)}
    if args.step and args.step not in found:
        known = f"Those that train are {', '.join(found)}." if found else ""
        raise UnknownNameError(f"{args.step!r} is no step of {target} that trains on a batch_size.", known)
    if not found:
        raise UsageError(f"no step of {target} trains on a batch_size that is known.", "See `allranks list`.")
    if len(found) > 1 and not args.step:
        raise UsageError(f"{target} has several steps that train: {', '.join(found)}.", "Choose one: --step STEP.")
    return found[args.step] if args.step else next(iter(found.values()))


def _measured(args: argparse.Namespace, target: str, facts: TrainingFacts) -> MeasuredTraining | None:
    """What a run has measured, or is made to measure now."""
    home = RunsHome(Path(args.runs_dir).resolve())
    if args.run:
        return measured_training(home.find(args.run), args.step)
    if not args.measure:
        return None
    from allranks.cli.live import perform_shown
    from allranks.performing import prepare_run
    from allranks.request import RunRequest

    values = parse_each("", parse_value, args.values)
    request = RunRequest(target, str(Path.cwd()), values=values, scale={facts.step: (1, 1)}, only=(facts.step,))
    result = perform_shown(prepare_run(request, home), home, as_json=args.json)
    if result.exit_code:
        raise UsageError(f"run {result.run_id}, which should have measured {facts.step}, {result.status}.", _GIVE)
    return measured_training(home.find(result.run_id), facts.step)


def _weights(args: argparse.Namespace, facts: TrainingFacts, measured: MeasuredTraining | None) -> tuple[float, str]:
    if args.weights:
        return args.weights, "given"
    if measured and measured.weights:
        return measured.weights, f"the model of run {measured.run_id}"
    if facts.weights:
        return facts.weights, "the settings of the target"
    message = f"how many weights {facts.step} has is not known: the data shapes it, or your code."
    raise UsageError(message, "Give --weights N, or --run RUN that has written such a model.")


def _sample_seconds(
    args: argparse.Namespace, facts: TrainingFacts, measured: MeasuredTraining | None, ranks: int
) -> tuple[float, str]:
    if measured is not None:
        seconds = measured.sample_seconds / args.times_faster
        faster = "" if args.times_faster == 1 else f", {args.times_faster:g} times faster"
        return seconds, f"run {measured.run_id}, step {measured.step}{faster}"
    if args.samples_per_second:
        return 1 / args.samples_per_second, "given"
    if args.sample_seconds:
        return args.sample_seconds, "given"
    if args.step_seconds:
        return args.step_seconds * ranks / facts.batch_size, "given"
    raise UsageError(f"nothing is known of how long a GPU of {args.size} computes for {facts.step}.", _GIVE)


def _price(args: argparse.Namespace, size: VMSize) -> NodePrice | None:
    if args.prices:
        return price_from_table(Path(args.prices), size.name)
    return None if args.price is None else NodePrice(args.price)


def _document(planned: PlannedTraining, forecasts: Sequence[NodeForecast]) -> dict[str, Any]:
    plan, price = planned.plan, planned.price
    return {
        "target": planned.target,
        "step": planned.facts.step,
        "component": planned.facts.component,
        "size": planned.size.name,
        "ranks_per_node": plan.network.ranks_per_node,
        "network": plan.network.kind,
        "division": plan.model.division,
        "gradient_bytes": plan.model.gradient_bytes,
        "weight_bytes": plan.model.weight_bytes,
        "sample_seconds": plan.sample_seconds,
        "samples": plan.samples,
        "sources": planned.sources,
        "price": None
        if price is None
        else {"amount": price.amount, "currency": price.currency} | {"source": price.source, "date": price.date},
        "nodes": [one.document() for one in forecasts],
    }


def _lines(planned: PlannedTraining, forecasts: Sequence[NodeForecast]) -> Iterator[str]:
    """A plan for people."""
    plan, facts = planned.plan, planned.facts
    yield f"{facts.step} of {planned.target} on {planned.size.name}, {plan.network.kind}, {facts.division}"
    size = size_words(plan.model.gradient_bytes)
    compute = f"compute of a row {plan.sample_seconds:.3g} s ({planned.sources['compute']})"
    yield f"  {compute}, gradients {size} ({planned.sources['weights']})"
    if planned.price is not None:
        yield f"  {_price_words(planned.price)}"
    head = _head(planned)
    yield aligned_rows([head, *(_cells(one, len(head)) for one in forecasts)])
    if any(not one.is_possible for one in forecasts):
        yield "  -: too few rows in a batch for the ranks, or too few ranks for the model"
    if planned.sources["samples"] == _NOT_SAID:
        yield "note: how many rows are to be trained on is not said: --samples N, all epochs."
    if planned.sources["compute"].startswith("run ") and "faster" not in planned.sources["compute"]:
        yield f"note: a rank of that run stands for a GPU of {planned.size.name}; say otherwise with --times-faster X."


def _price_words(price: NodePrice) -> str:
    source = f" ({price.source}, {price.date})" if price.source else ""
    return f"a node costs {price.amount:g} {price.currency}".rstrip() + f" for an hour{source}"


def _head(planned: PlannedTraining) -> list[str]:
    rows = planned.plan.samples
    whole = [] if rows is None else [f"time for {rows:,.0f} rows"]
    cost = [] if rows is None or planned.price is None else [f"cost {planned.price.currency}".strip()]
    return ["nodes", "ranks", "batch", "step", "efficiency", "rows/s", "goodput", "save every", *whole, *cost]


def _cells(one: NodeForecast, count: int) -> list[str]:
    if not one.is_possible:
        return [str(one.nodes), str(one.ranks), str(one.batch_size), *["-"] * (count - 3)]
    cells = [str(one.nodes), str(one.ranks), str(one.batch_size), _step_words(one.step.total)]
    cells += [f"{one.step.efficiency:.1%}", f"{one.samples_per_second:,.0f}", f"{one.goodput:.1%}"]
    cells.append("never" if math.isinf(one.save_every) else duration_words(one.save_every))
    cells += [] if one.seconds is None else [duration_words(one.seconds)]
    return cells + ([] if one.cost is None else [f"{one.cost:,.2f}"])


def _step_words(seconds: float) -> str:
    return f"{1000 * seconds:.3g} ms" if seconds < 1 else f"{seconds:.2f} s"
