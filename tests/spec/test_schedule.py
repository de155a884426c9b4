"""Schedules are checked with the job that they name, and are not run."""

from __future__ import annotations

import pytest

from tests.local.support import allranks

JOB = """\
type: pipeline
inputs: {rows: 3}
settings: {default_compute: azureml:cpu}
jobs:
  a: {command: "echo ${{inputs.n}}", environment: 'azureml:e:1', inputs: {n: '${{parent.inputs.rows}}'}}
"""
GOOD = """\
$schema: https://azuremlschemas.azureedge.net/latest/schedule.schema.json
name: nightly
trigger:
  type: recurrence
  frequency: week
  interval: 1
  schedule: {hours: [4, 10], minutes: 30, week_days: [monday, friday]}
  start_time: "2030-01-10T10:00:00"
  time_zone: UTC
create_job:
  type: pipeline
  job: ./job.yaml
  inputs: {rows: 4}
"""
CRON = GOOD.partition("  type: recurrence")[0] + '  type: cron\n  expression: "0 */2 * * 1-5"\ncreate_job: ./job.yaml\n'

# fmt: off
MISTAKES = [
    (GOOD, "name: nightly\n", "", "has no name."),
    (GOOD, "type: recurrence", "type: recurrent", "'recurrent' is no type of a trigger."),
    (GOOD, "frequency: week", "frequency: weekly", "'weekly' is none of the frequencies."),
    (GOOD, "  interval: 1\n", "", "states no interval."),
    (GOOD, "interval: 1", "interval: often", "'often' is not a whole number."),
    (GOOD, "[4, 10]", "[4, 24]", "24 is not from 0 to 23."),
    (GOOD, "minutes: 30, ", "", "states no minutes."),
    (GOOD, "[monday, friday]", "mon", "'mon' is none of the days."),
    (GOOD, "2030-01-10T", "next week ", "is no time."),
    (GOOD, "job: ./job.yaml", "job: ./jobb.yaml", "there is no file './jobb.yaml'"),
    (GOOD, "rows: 4", "row: 4", "the job has no input 'row'."),
    (GOOD, "  job: ./job.yaml\n", "", "names no job."),
    (GOOD, "time_zone:", "timezone:", "'timezone' is not a key of a recurrence trigger."),
    (CRON, "0 */2 * * 1-5", "0 */2 * *", "has 4 fields, and cron has five: minute, hour, day, month, day of the week."),
    (CRON, "0 */2", "60 */2", "'60' is no minute: 0 to 59"),
    (CRON, "create_job: ./job.yaml\n", "", "has no create_job."),
]
# fmt: on


def test_schedules_are_linted_with_their_jobs_and_not_run(tmp_path):
    (tmp_path / "job.yaml").write_text(JOB)
    (tmp_path / "good.yaml").write_text(GOOD)
    (tmp_path / "cron.yaml").write_text(CRON)
    for number, (text, right, wrong, _) in enumerate(MISTAKES):
        assert right in text
        (tmp_path / f"wrong{number}.yaml").write_text(text.replace(right, wrong, 1))
    found = allranks("lint", ".", cwd=tmp_path).stdout.splitlines()
    for number, (*_, message) in enumerate(MISTAKES):
        assert any(line.startswith(f"wrong{number}.yaml:") and message in line for line in found), (message, found)
    assert [line for line in found if line.startswith(("good.yaml", "cron.yaml", "job.yaml"))] == []


@pytest.mark.parametrize("text", [GOOD, CRON])
def test_run_says_that_its_job_can_be(tmp_path, text):
    (tmp_path / "job.yaml").write_text(JOB)
    (tmp_path / "nightly.yaml").write_text(text)
    refused = allranks("run", "nightly.yaml", cwd=tmp_path)
    assert refused.returncode == 2
    assert "cannot run here: a schedule starts its job on Azure." in refused.stderr
    assert f"allranks run {tmp_path / 'job.yaml'}" in refused.stderr


def test_a_mistake_in_the_job_is_a_mistake_of_the_schedule(tmp_path):
    (tmp_path / "job.yaml").write_text(JOB.replace("parent.inputs.rows", "parent.inputs.row"))
    (tmp_path / "nightly.yaml").write_text(CRON)
    assert "the pipeline has no input 'row'" in allranks("lint", "nightly.yaml", cwd=tmp_path).stdout
