"""Sweep steps: what is read, and the message for each mistake."""

from __future__ import annotations

import math

import pytest

from allranks.errors import SpecError
from allranks.spec import check_document, pipeline_from
from allranks.spec.document import read_yaml
from allranks.spec.model import Source

COMPONENT = (
    "{type: command, inputs: {rate: {type: number, min: 0, max: 10}, epochs: {type: integer, default: 1}, "
    "kind: {type: string, default: a}, rows: {type: uri_folder, optional: true}}, environment: 'azureml:e:1', "
    "command: \"x ${{inputs.rate}} ${{inputs.epochs}} '${{inputs.kind}}' $[[${{inputs.rows}}]]\"}"
)
SPACE = "{rate: {type: uniform, min_value: 0, max_value: 1}}"


def text(space: str = SPACE, algorithm: str = "random", more: str = "", limits: str = "{max_total_trials: 4}") -> str:
    return (
        f"type: pipeline\njobs:\n  s:\n    type: sweep\n    trial: {COMPONENT}\n    sampling_algorithm: {algorithm}\n"
        f"    search_space: {space}\n    objective: {{goal: maximize, primary_metric: m}}\n    limits: {limits}\n{more}"
    )


def read(folder, document):
    file = folder / "sweep.yaml"
    file.write_text(document)
    data, source = read_yaml(file)
    return pipeline_from(data, Source(None, folder, source.lines))


def problems(folder, document):
    try:
        return check_document(read(folder, document))
    except SpecError as error:
        return list(error.problems)


# fmt: off
MISTAKES = [
    ("algorithm", text(algorithm="randm"), "sampling_algorithm", "'randm' is no sampling algorithm. Did you mean 'random'?"),
    ("rule", text(algorithm="{type: random, rule: soboll}"), "sampling_algorithm.rule", "'soboll' is none of the rules. Did you mean 'sobol'?"),
    ("seed of a grid", text("{rate: {type: choice, values: [1]}}", "{type: grid, seed: 3}"), "sampling_algorithm.seed", "'seed' is not a key of grid sampling."),
    ("base", text(algorithm="{type: random, logbase: 1}"), "sampling_algorithm.logbase", "1 is no base of a logarithm. Write e, or a number above 1."),
    ("grid of numbers", text(algorithm="grid"), "search_space.rate.type", "grid sampling searches choice only, and this is a uniform."),
    ("bayesian", text("{rate: {type: loguniform, min_value: -3, max_value: 0}}", "bayesian"), "search_space.rate.type", "bayesian sampling searches choice, uniform, quniform only, and this is a loguniform."),
    ("empty space", text("{}"), "search_space", "is empty: a sweep searches at least one input."),
    ("missing bound", text("{rate: {type: uniform, min_value: 0}}"), "search_space.rate", "a search of type uniform needs 'max_value'."),
    ("misspelt bound", text("{rate: {type: uniform, min_value: 0, max_vale: 1}}"), "search_space.rate.max_vale", "'max_vale' is not a key of a search of type uniform. Did you mean 'max_value'?"),
    ("text for a bound", text("{rate: {type: uniform, min_value: low, max_value: 1}}"), "search_space.rate.min_value", "'low' is not a number."),
    ("ends swapped", text("{rate: {type: uniform, min_value: 2, max_value: 1}}"), "search_space.rate", "min_value 2 is above max_value 1."),
    ("q", text("{rate: {type: quniform, min_value: 0, max_value: 1, q: 0}}"), "search_space.rate.q", "0 is not above 0."),
    ("sigma", text("{rate: {type: normal, mu: 0, sigma: -1}}"), "search_space.rate.sigma", "-1 is below the minimum of 0."),
    ("upper", text("{epochs: {type: randint, upper: 0}, rate: {type: choice, values: [1]}}"), "search_space.epochs.upper", "0 is below the minimum of 1."),
    ("fractions", text("{epochs: {type: uniform, min_value: 1, max_value: 9}, rate: {type: choice, values: [1]}}"), "search_space.epochs", "a search of type uniform gives fractions, and the input takes an integer. Use randint, or quniform with q: 1."),
    ("beyond the input", text("{rate: {type: uniform, min_value: 0, max_value: 11}}"), "search_space.rate", "the search reaches 11.0 is above the maximum of 10 (0 to 10)."),
    ("exponent taken for a value", text("{rate: {type: loguniform, min_value: 1, max_value: 1000}}"), "search_space.rate", "its values are too large for a number. The ends of a logarithmic search are exponents."),
    ("quote", text("{kind: {type: choice, values: [\"it's\"]}, rate: {type: choice, values: [1]}}"), "search_space.kind", "has a single quote in it, which would end the quoting in the command."),
    ("trials", text(limits="{max_total_trials: 0}"), "limits.max_total_trials", "0 is below the minimum of 1."),
    ("too many trials", text(limits="{max_total_trials: 1001}"), "limits.max_total_trials", "1001 is above the maximum of 1000."),
    ("policy", text(more="    early_termination: {type: bandits, slack_factor: 0.1}\n"), "early_termination.type", "'bandits' is no policy of early termination. Did you mean 'bandit'?"),
    ("no slack", text(more="    early_termination: {type: bandit}\n"), "early_termination", "states neither slack_factor nor slack_amount."),
    ("two slacks", text(more="    early_termination: {type: bandit, slack_factor: 1, slack_amount: 1}\n"), "early_termination", "states two slacks."),
    ("percentage", text(more="    early_termination: {type: truncation_selection, truncation_percentage: 100}\n"), "early_termination.truncation_percentage", "100 is not from 1 to 99"),
    ("policy's key", text(more="    early_termination: {type: median_stopping, slack_factor: 1}\n"), "early_termination.slack_factor", "'slack_factor' is not a key of a median_stopping policy."),
    ("interval", text(more="    early_termination: {type: median_stopping, evaluation_interval: -1}\n"), "early_termination.evaluation_interval", "-1 is below the minimum of 0."),
    ("unknown name in inputs", text(more="    inputs: {epochs: '${{search_space.epoch}}'}\n"), "inputs.epochs", "${{search_space.epoch}}: the search space has no 'epoch'."),
]
# fmt: on


@pytest.mark.parametrize(
    ("document", "where", "message"), [row[1:] for row in MISTAKES], ids=[row[0] for row in MISTAKES]
)
def test_a_mistake_has_its_place_and_message(tmp_path, document, where, message):
    found = [(problem.where, f"{problem.message} {problem.hint}".strip()) for problem in problems(tmp_path, document)]
    assert any(place == f"jobs.s.{where}" and message in full for place, full in found), found


def test_fractions_for_an_integer_are_a_warning_for_the_script_may_round_them(tmp_path):
    space = "{epochs: {type: uniform, min_value: 1, max_value: 9}, rate: {type: choice, values: [1]}}"
    assert [(one.where, one.severity) for one in problems(tmp_path, text(space))] == [
        ("jobs.s.search_space.epochs", "warning")
    ]


@pytest.mark.parametrize("type_", ["truncation_selection", "TruncationSelection", "truncationSelection"])
def test_a_policy_is_written_in_camel_case_or_in_snake_case(tmp_path, type_):
    more = f"    early_termination: {{type: {type_}, truncation_percentage: 20}}\n"
    assert problems(tmp_path, text(more=more)) == []
    assert read(tmp_path, text(more=more)).steps["s"].sweep.early_termination["type"] == "truncation_selection"


def test_what_is_right_raises_nothing(tmp_path):
    space = (
        "{rate: {type: loguniform, min_value: -6, max_value: -1}, epochs: {type: quniform, min_value: 1, max_value: 9, q: 2}, "
        "kind: {type: choice, values: [a, b]}}"
    )
    policy = "    early_termination: {type: bandit, slack_factor: 0.1, slack_amount: 0}\n"
    assert problems(tmp_path, text(space, "{type: random, rule: sobol, seed: 7, logbase: 10}", policy)) == []
    assert problems(tmp_path, text("{r: {type: uniform, min_value: 0, max_value: 1}}", more="    inputs: {rate: '${{search_space.r}}'}\n")) == []  # fmt: skip
    sweep = read(tmp_path, text(space, "{type: random, rule: sobol, seed: 7, logbase: 10}", policy)).steps["s"].sweep
    assert (sweep.algorithm, sweep.seed, sweep.log_base) == ("sobol", 7, 10)
    assert sweep.early_termination == {
        "type": "bandit", "evaluation_interval": 0, "delay_evaluation": 0, "slack_factor": 0.1
    }  # fmt: skip
    assert read(tmp_path, text()).steps["s"].sweep.log_base == math.e
