"""Sweep steps with real trials: the best is passed on, whatever fails, falls behind, hangs or is killed."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from pathlib import Path

import pytest

from allranks.local.folders import RunsHome
from tests.local.support import allranks, carrying, late, pipeline, run_json, start_allranks, step
from tests.waiting import wait_for

TWO_AT_A_TIME = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="trials run within the machine's cores")
LOG = """mkdir -p outputs; echo '{{"step": 1, "metrics": {{"loss": 5, "score": {value}}}}}' >> outputs/metrics.jsonl"""


def log(value: str) -> str:
    """Shell code that logs ``score``."""
    return LOG.format(value=value)


def sweep(
    code: str,
    space: str,
    *,
    algorithm: str = "grid",
    limits: str = "",
    goal: str = "maximize",
    trial: str = "",
    more: str = "",
    inputs: str = "",
) -> str:
    """A sweep step in flow style; the trial has the inputs x (a number) and kind, and the output out."""
    component = (
        f"{{type: command, command: {json.dumps(code)}, environment: 'azureml:whatever:1', "
        f"inputs: {{x: {{type: number}}, kind: {{type: string, default: none}}, data: {{type: uri_file, optional: true}}}}, "
        f"outputs: {{out: {{type: uri_folder}}}}{trial}}}"
    )
    return (
        f"{{type: sweep, trial: {component}, sampling_algorithm: {algorithm}, search_space: {{{space}}}, "
        f"inputs: {{{inputs}}}, objective: {{goal: {goal}, primary_metric: score}}, "
        f"limits: {{max_total_trials: 8, max_concurrent_trials: 2{limits}}}{more}}}"
    )


def numbers(*values: float) -> str:
    return f"x: {{type: choice, values: {list(values)}}}"


def jobs(folder: Path, **steps: str) -> Path:
    return pipeline(folder, "type: pipeline\njobs:\n" + "".join(f"  {name}: {text}\n" for name, text in steps.items()))


def statuses(result: dict, name: str = "tune") -> list[str]:
    return [trial["status"] for trial in result["steps"][name]["trials"]]


WRITE = "echo ${{inputs.x}} > ${{outputs.out}}/x; "


def test_the_best_trials_outputs_are_the_steps_and_a_second_run_repeats_nothing(tmp_path):
    code = f"echo ran >> {tmp_path}/count; $[[cat ${{{{inputs.data}}}}; ]]{WRITE}" + log("${{inputs.x}}")
    file = jobs(
        tmp_path,
        make=step("echo made > ${{outputs.file}}", outputs="file: {type: uri_file}"),
        tune=sweep(
            code,
            "x: {type: uniform, min_value: 2, max_value: 3}, kind: {type: choice, values: [a, b]}",
            algorithm="{type: random, seed: 5}",
            inputs="data: '${{parent.jobs.make.outputs.file}}'",
        ),
        use=step("cat ${{inputs.best}}/x", inputs="best: '${{parent.jobs.tune.outputs.out}}'"),
    )
    result = run_json(file, cwd=tmp_path)
    assert result["exit"] == 0
    tune = result["steps"]["tune"]
    assert (tmp_path / "count").read_text() == "ran\n" * 8
    assert [trial["number"] for trial in tune["trials"]] == list(range(8))
    assert all(
        2 <= trial["parameters"]["x"] <= 3 and trial["metric"] == trial["parameters"]["x"] for trial in tune["trials"]
    )
    best = max(tune["trials"], key=lambda trial: trial["metric"])
    assert tune["best_trial"] == best["number"]
    assert tune["metrics"] == {"score": best["metric"], "loss": 5}
    assert (tune["goal"], tune["primary_metric"], tune["max_total_trials"]) == ("maximize", "score", 8)
    out = Path(tune["outputs"]["out"])
    assert float((out / "x").read_text()) == best["metric"]
    assert out.resolve() == Path(best["folder"], "outputs", "out")
    log_of_use = Path(result["steps"]["use"]["folder"], "user_logs", "std_log.txt").read_text()
    assert float(log_of_use) == best["metric"]
    assert Path(best["folder"], "user_logs", "std_log.txt").read_text() == "made\n"

    run = RunsHome(tmp_path / ".allranks").run(result["run_id"])
    assert run.step("tune.3").path == run.path / "steps/tune/trials/3"
    assert json.loads(run.step("tune").state.read_text())["trials"] == tune["trials"]
    assert json.loads(run.step("tune.3").state.read_text())["parameters"] == tune["trials"][3]["parameters"]
    assert json.loads(run.state.read_text())["steps"]["tune"]["best_trial"] == best["number"]
    page = run.report.read_text()
    (by_trial, *_) = re.findall(r'aria-label="\w+ by trial".*?</figure>', page, re.DOTALL)
    assert by_trial.count('<path class="dot') == 8
    assert f"{best['number']}, the best" in page
    logs = allranks("runs", "logs", "latest", "tune.3", cwd=tmp_path)
    assert logs.stdout == "made\n"

    again = run_json(file, cwd=tmp_path)
    assert all(one["reused"] for one in again["steps"].values())
    assert again["steps"]["tune"]["trials"] == tune["trials"]
    assert again["steps"]["tune"]["metrics"] == tune["metrics"]
    assert (tmp_path / "count").read_text() == "ran\n" * 8
    refused = allranks("runs", "remove", result["run_id"], cwd=tmp_path)
    assert refused.returncode == 2, "a later run leans on it"

    more = pipeline(tmp_path, file.read_text().replace("max_total_trials: 8", "max_total_trials: 10"), "more.yaml")
    longer = run_json(more, cwd=tmp_path)["steps"]["tune"]["trials"]
    assert [trial["reused_from"] for trial in longer] == [result["run_id"]] * 8 + [None] * 2
    assert (tmp_path / "count").read_text() == "ran\n" * 10


def gated(folder: Path) -> str:
    """The trial of the tests that kill: 2 fails, those from 5 on wait for a gate."""
    return (
        f"echo ${{{{inputs.x}}}} >> {folder}/begun; if [ ${{{{inputs.x}}}} = 2 ]; then echo no; exit 3; fi; "
        f"while [ ${{{{inputs.x}}}} -ge 5 -a ! -e {folder}/gate ]; do sleep 0.02; done; {WRITE}" + log("${{inputs.x}}")
    )


@pytest.mark.parametrize("resumed", ["by its id", pytest.param("by running again", marks=pytest.mark.exhaustive)])
def test_a_sweep_survives_a_failing_trial_and_a_kill_of_the_engine(tmp_path, resumed):
    file = jobs(tmp_path, tune=sweep(gated(tmp_path), numbers(*range(8))))
    engine = start_allranks("run", file, cwd=tmp_path)
    begun = tmp_path / "begun"
    wait_for(lambda: begun.exists() and "5" in begun.read_text().split())
    run = wait_for(lambda: next((tmp_path / ".allranks/runs").iterdir(), None))
    # All before the waiting ones are over, so that it is known which have to run again.
    wait_for(lambda: "4" in done_before(run))
    engine.kill()
    engine.wait()
    wait_for(lambda: not carrying(f"AZUREML_ROOT_RUN_ID={run.name}"))
    before = begun.read_text().split()
    waiting = set(before) - {"0", "1", "2", "3", "4"}
    (tmp_path / "gate").touch()
    result = run_json(*(["--resume", run.name] if resumed == "by its id" else [file]), cwd=tmp_path)
    assert result["exit"] == 0
    assert statuses(result) == ["succeeded"] * 2 + ["failed"] + ["succeeded"] * 5
    assert result["steps"]["tune"]["best_trial"] == 7
    assert Counter(begun.read_text().split()) == {str(n): 2 if str(n) in waiting else 1 for n in range(8)}
    assert [trial["reused_from"] for trial in result["steps"]["tune"]["trials"][:5]] == [run.name] * 5
    assert result["steps"]["tune"]["trials"][2]["message"] == "the command ended with exit code 3"
    assert not list((tmp_path / ".allranks/work").iterdir())


def done_before(run: Path) -> set[str]:
    """The values of the trials of a running sweep that are over."""
    try:
        trials = json.loads((run / "steps/tune/step.json").read_text())["trials"]
    except (OSError, ValueError):
        return set()
    return {str(trial["parameters"]["x"]) for trial in trials if trial["status"] in {"succeeded", "failed"}}


def test_when_all_trials_fail_the_step_fails_and_names_the_first(tmp_path):
    file = jobs(tmp_path, tune=sweep("echo wrong $(( 40 + 2 )); exit 9", numbers(4, 5)))
    result = run_json(file, cwd=tmp_path)
    assert result["exit"] == 1
    failure = result["steps"]["tune"]["failure"]
    assert failure["message"] == (
        "none of 2 trials succeeded; the first, tune.0 (x=4): the command ended with exit code 9"
    )
    assert failure["last_lines"] == ["wrong 42"]
    assert Path(failure["log"]) == Path(result["run_dir"], "steps/tune/trials/0/user_logs/std_log.txt")
    assert "wrong 42" in allranks("run", file, cwd=tmp_path).stderr, "failed trials are tried again"


def test_failing_trials_do_not_stop_a_pipeline_that_stops_at_the_first_failure(tmp_path):
    code = "if [ ${{inputs.x}} = 1 ]; then exit 1; fi; " + log("1")
    file = jobs(tmp_path, tune=sweep(code, numbers(1, 2)))
    file.write_text(file.read_text() + "settings: {continue_on_step_failure: false}\n")
    result = run_json(file, cwd=tmp_path)
    assert (result["status"], statuses(result)) == ("succeeded", ["failed", "succeeded"])


def test_a_metric_that_nobody_logs_is_named(tmp_path):
    code = log("1").replace("score", "accuracy")
    result = run_json(jobs(tmp_path, tune=sweep(code, numbers(1, 2))), cwd=tmp_path)
    assert result["exit"] == 1
    message = result["steps"]["tune"]["failure"]["message"]
    assert "no trial logged the primary metric 'score'" in message
    assert "logged were: accuracy, loss" in message


def test_a_trial_whose_metric_may_be_lost_fails_the_sweep_and_is_named(tmp_path):
    """Of a trial that left no trace at all nobody knows whether it was the best."""
    code = f"echo . >> {tmp_path}/begun; if [ ${{{{inputs.x}}}} != 3 -o -e {tmp_path}/mended ]; then {log('${{inputs.x}}')}; fi"
    file = jobs(tmp_path, tune=sweep(code, numbers(1, 2, 3)))
    result = run_json(file, cwd=tmp_path)
    assert (result["status"], statuses(result)) == ("failed", ["succeeded", "succeeded", "failed"])
    message = result["steps"]["tune"]["failure"]["message"]
    assert message.startswith("no best trial can be told: tune.2 (x=3) ended well but logged no 'score'")
    (tmp_path / "mended").touch()
    result = run_json(file, cwd=tmp_path)
    assert (result["status"], result["steps"]["tune"]["best_trial"]) == ("succeeded", 2)
    assert (tmp_path / "begun").read_text() == ".\n" * 4, "only the one is repeated"


def test_a_trial_without_a_finite_metric_is_not_ranked_and_named(tmp_path):
    code = f"if [ ${{{{inputs.x}}}} = 3 ]; then {log('NaN')}; else {log('${{inputs.x}}')}; fi"
    file = jobs(tmp_path, tune=sweep(code, numbers(3, 2)))
    done = allranks("run", file, cwd=tmp_path)
    assert done.returncode == 0
    assert "best of 2 trials: 1 (x=2); not ranked, without a finite score: 0" in done.stdout
    trials = run_json(file, cwd=tmp_path)["steps"]["tune"]["trials"]
    assert [trial["message"] for trial in trials] == ["logged no finite 'score'", ""]


ONE_AT_A_TIME = ("max_concurrent_trials: 2", "max_concurrent_trials: 1")


def test_a_trial_that_exceeds_its_time_is_cancelled_and_no_failure(tmp_path):
    code = f"echo . >> {tmp_path}/begun; {log('3')}; if [ ${{{{inputs.x}}}} = 1 ]; then touch $JUMPS/0; sleep 300; fi"
    text = sweep(code, numbers(2, 1, 3), limits=", trial_timeout: 600").replace(*ONE_AT_A_TIME)
    result = run_json(jobs(tmp_path, tune=text), "--retries", "2", cwd=tmp_path, **late(tmp_path / "jumps"))
    assert (result["status"], statuses(result)) == ("succeeded", ["succeeded", "cancelled", "succeeded"])
    tune = result["steps"]["tune"]
    assert tune["trials"][1]["message"] == "not finished after limits.trial_timeout = 600 s"
    assert tune["best_trial"] == 0, "outputs of a cancelled trial may be half written"
    assert (tmp_path / "begun").read_text() == ".\n" * 3
    assert not carrying(f"AZUREML_ROOT_RUN_ID={result['run_id']}")


def test_when_the_sweeps_time_is_up_the_best_so_far_is_taken(tmp_path):
    code = f"echo a word; {log('${{inputs.x}}')}; if [ ${{{{inputs.x}}}} = 2 ]; then touch $JUMPS/0; sleep 300; fi"
    text = sweep(code, numbers(1, 2, 3), limits=", timeout: 600").replace(*ONE_AT_A_TIME)
    result = run_json(jobs(tmp_path, tune=text), cwd=tmp_path, **late(tmp_path / "jumps"))
    assert (result["status"], statuses(result)) == ("succeeded", ["succeeded", "cancelled"])
    assert result["steps"]["tune"]["best_trial"] == 0
    second = result["steps"]["tune"]["trials"][1]
    assert "limits.timeout = 600 s was up" in second["message"]
    failure = json.loads((Path(second["folder"]) / "step.json").read_text())["failure"]
    assert failure["last_lines"] == ["a word"], "what it did until then"
    assert Path(failure["log"]).read_text() == "a word\n"


@pytest.mark.parametrize(
    "policy",
    [
        "{type: bandit, slack_factor: 0.1, evaluation_interval: 1}",
        pytest.param(
            "{type: median_stopping, evaluation_interval: 1, delay_evaluation: 2}", marks=pytest.mark.exhaustive
        ),
        pytest.param(
            "{type: truncation_selection, truncation_percentage: 50, evaluation_interval: 2}",
            marks=pytest.mark.exhaustive,
        ),
    ],
)
def test_a_trial_that_falls_behind_is_ended_early(tmp_path, policy):
    code = f"{log('${{inputs.x}}')}; {log('${{inputs.x}}')}; if [ ${{{{inputs.x}}}} = 1 ]; then sleep 300; fi"
    text = sweep(code, numbers(9, 8.9, 1), more=f", early_termination: {policy}").replace(*ONE_AT_A_TIME)
    result = run_json(jobs(tmp_path, tune=text), cwd=tmp_path)
    assert result["exit"] == 0
    assert statuses(result)[2] == "cancelled"
    assert result["steps"]["tune"]["trials"][2]["message"].startswith("ended early by ")
    assert result["steps"]["tune"]["trials"][2]["metric"] == 1


@TWO_AT_A_TIME
def test_two_trials_run_at_a_time_and_no_more(tmp_path):
    """The first two wait for each other; how many are inside at once is counted all along."""
    code = (
        f"cd {tmp_path}; mkdir -p inside; touch inside/${{{{inputs.x}}}} met_${{{{inputs.x}}}}; "
        "while [ ${{inputs.x}} -le 2 -a ! '(' -e met_1 -a -e met_2 ')' ]; do sleep 0.02; done; "
        "ls inside | wc -l >> most; rm inside/${{inputs.x}}; cd -; " + log("1")
    )
    result = run_json(jobs(tmp_path, tune=sweep(code, numbers(1, 2, 3, 4, 5, 6))), cwd=tmp_path)
    assert result["exit"] == 0
    assert max(map(int, (tmp_path / "most").read_text().split())) == 2


def test_a_nested_sweep_with_ranks_whose_inputs_name_the_search_space(tmp_path):
    code = f'if [ "$RANK" = 0 ]; then {WRITE} {log("-${{inputs.x}}")}; fi; echo rank $RANK ${{{{inputs.kind}}}}'
    inner = sweep(
        code,
        "rate: {type: choice, values: [3, 7]}",
        goal="minimize",
        trial=", distribution: {type: pytorch, process_count_per_instance: 2}",
        inputs="x: '${{search_space.rate}}', kind: '${{parent.inputs.word}}'",
        more=", outputs: {out: '${{parent.outputs.best}}'}",
    )
    pipeline(
        tmp_path,
        f"type: pipeline\nname: inner\ninputs: {{word: {{type: string}}}}\noutputs: {{best: {{type: uri_folder}}}}\n"
        f"jobs:\n  tune: {inner}\n",
        "inner.yaml",
    )
    use = step("cat ${{inputs.best}}/x", inputs="best: '${{parent.jobs.all.outputs.best}}'")
    outer = pipeline(
        tmp_path,
        "type: pipeline\ninputs: {word: hello}\njobs:\n"
        "  all: {type: pipeline, component: ./inner.yaml, inputs: {word: '${{parent.inputs.word}}'}}\n"
        f"  use: {use}\n",
    )
    result = run_json(outer, cwd=tmp_path)
    assert result["exit"] == 0
    tune = result["steps"]["all.tune"]
    assert (tune["processes"], tune["best_trial"], tune["metrics"]["score"]) == (2, 1, -7)
    for trial in tune["trials"]:
        for rank in range(2):
            text = Path(trial["folder"], f"user_logs/std_log_process_{rank}.txt").read_text()
            assert text == f"rank {rank} hello\n"
    assert Path(result["steps"]["use"]["folder"], "user_logs/std_log.txt").read_text() == "7\n"
    logs = allranks("runs", "logs", "latest", "all.tune.1", "--rank", "1", cwd=tmp_path).stdout
    assert logs == "rank 1 hello\n"


def test_trials_keep_the_code_of_the_beginning_and_their_checkpoints(tmp_path):
    """The snapshot is the sweep's, and an output on a mount is found again by the trial that wrote it."""
    (tmp_path / "code").mkdir()
    logged = log("'$1'")
    (tmp_path / "code/run.sh").write_text(f'echo $1 >> "$2/seen"; {logged}; [ $(wc -l < "$2/seen") = 2 ]')
    code = "bash run.sh ${{inputs.x}} ${{outputs.out}}"
    text = sweep(code, numbers(1, 2), trial=", code: ./code").replace(
        "out: {type: uri_folder}", "out: {type: uri_folder, mode: rw_mount}"
    )
    result = run_json(jobs(tmp_path, tune=text), "--retries", "1", cwd=tmp_path)
    assert statuses(result) == ["succeeded", "succeeded"]
    assert Path(result["steps"]["tune"]["outputs"]["out"], "seen").read_text() == "2\n2\n"


@pytest.mark.parametrize(
    "algorithm", ["bayesian", pytest.param("{type: random, rule: sobol, seed: 1}", marks=pytest.mark.exhaustive)]
)
def test_the_other_algorithms(tmp_path, algorithm):
    space = "x: {type: uniform, min_value: 0, max_value: 1}, kind: {type: choice, values: [a, b]}"
    file = jobs(tmp_path, tune=sweep(log("${{inputs.x}}"), space, algorithm=algorithm))
    result = run_json(file, cwd=tmp_path)
    assert statuses(result) == ["succeeded"] * 8
    values = [trial["parameters"]["x"] for trial in result["steps"]["tune"]["trials"]]
    assert len(set(values)) == 8
    assert result["steps"]["tune"]["metrics"]["score"] == max(values)


def test_what_cannot_run_here_is_refused_before_anything_starts(tmp_path):
    mapped = jobs(tmp_path, tune=sweep("echo", "x: {type: choice, values: [{a: 1}]}"))
    done = allranks("run", mapped, cwd=tmp_path)
    assert done.returncode == 2
    assert "cannot run here: 'x' is a choice among mappings." in done.stderr
    assert not (tmp_path / ".allranks/runs").exists() or not list((tmp_path / ".allranks/runs").iterdir())


@pytest.mark.slow
@pytest.mark.exhaustive
def test_what_a_trial_logs_to_mlflow_alone_counts(tmp_path):
    (tmp_path / "code").mkdir()
    (tmp_path / "code/train.py").write_text(
        "import sys, mlflow\n"
        "with mlflow.start_run():\n"
        "    for step in range(3):\n"
        "        mlflow.log_metric('score', float(sys.argv[1]) + step, step=step)\n"
    )
    text = sweep("python train.py ${{inputs.x}}", numbers(1, 4), trial=", code: ./code")
    text = text.replace(*ONE_AT_A_TIME)
    result = run_json(jobs(tmp_path, tune=text), cwd=tmp_path)
    assert result["exit"] == 0, result
    assert [trial["metric"] for trial in result["steps"]["tune"]["trials"]] == [3, 6]


@pytest.mark.slow
@pytest.mark.exhaustive
def test_tune_image_classification(tmp_path):
    home = tmp_path / ".allranks"
    pipeline_file = tmp_path / "tune.yaml"
    source = Path(__file__).parents[2] / "pipelines" / "tune_image_classification.yaml"
    text = source.read_text().replace("../components", str(source.parents[1] / "components"))
    pipeline_file.write_text(text.replace("max_total_trials: 8", "max_total_trials: 2"))
    result = run_json(pipeline_file, "epochs=4", "--runs-dir", home, cwd=tmp_path)
    assert result["exit"] == 0, result
    train = result["steps"]["train"]
    assert len(train["trials"]) == 2
    assert train["metrics"]["validation_accuracy"] > 0.8
    assert result["steps"]["evaluate"]["metrics"]["accuracy"] > 0.8
    assert Path(result["outputs"]["model"], "MLmodel").is_file()
