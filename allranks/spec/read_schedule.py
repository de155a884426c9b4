"""Schedules: when Azure ML is to start a job, and which; none is run here, and its job can be.

The rules are those of ``JobScheduleSchema`` and ``TriggerSchema`` in azure-ai-ml, and the five fields of a cron
expression those of Azure ML's YAML reference for schedules.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime

from allranks.spec import schema
from allranks.spec.model import Component, Pipeline
from allranks.spec.section import Section, shown_value
from allranks.spec.suggest import did_you_mean

_FREQUENCIES = ("minute", "hour", "day", "week", "month")
_WEEK_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_RANGES = {"hours": (0, 23), "minutes": (0, 59), "month_days": (1, 31)}
_TIMES = frozenset({"type", "start_time", "end_time", "time_zone"})
_CRON = {"minute": (0, 59), "hour": (0, 23), "day": (1, 31), "month": (1, 12), "day of the week": (0, 7)}


def is_schedule(top: Section) -> bool:
    """Whether a document is one."""
    return not top.where and ("schedule.schema" in top.text("$schema") or {"trigger", "create_job"} <= top.data.keys())


def read_schedule(
    top: Section, find: Callable[[Section, str, str], Component | Pipeline | None]
) -> Component | Pipeline | None:
    """Note what is wrong with a schedule, and that it is not run; return the job that it starts, if that is here."""
    top.known(schema.SCHEDULE, "a schedule")
    if "name" not in top:
        top.wrong("", "has no name.", "Write name: my_schedule.")
    _check_trigger(top)
    if "create_job" not in top:
        top.wrong("", "has no create_job.", "Write create_job: ./job.yml.")
        return None
    if not isinstance(top.data["create_job"], dict):
        return _job(top, "create_job", find)
    changed = top.mapping("create_job")
    if "job" not in changed:
        changed.wrong("", "names no job.", "Write job: ./job.yml.")
        return None
    job = _job(changed, "job", find)
    for name in changed.mapping("inputs") if job is not None else ():
        assert job is not None  # noqa: S101 the line above
        if name not in job.inputs:
            changed.wrong(f"inputs.{name}", f"the job has no input '{name}'.", did_you_mean(name, job.inputs, "inputs"))
    return job


def _job(
    section: Section, key: str, find: Callable[[Section, str, str], Component | Pipeline | None]
) -> Component | Pipeline | None:
    """The job that a key names; what starts it is not here."""
    written = section.text(key)
    job = None if written.startswith("azureml:") else find(section, key, "")
    hint = "" if written.startswith("azureml:") else f"Its job can be run: allranks run {section.local(written)}."
    section.wrong(key, "cannot run here: a schedule starts its job on Azure.", hint, "elsewhere")
    return job


def _check_trigger(top: Section) -> None:
    trigger = top.mapping("trigger")
    if not trigger.data:
        top.wrong("", "has no trigger.", "Write trigger: {type: recurrence, frequency: day, interval: 1}.")
        return
    type_ = trigger.text("type").lower()
    for key in ("start_time", "end_time"):
        _check_time(trigger, key)
    if type_ == "cron":
        trigger.known(_TIMES | {"expression"}, "a cron trigger")
        _check_cron(trigger)
    elif type_ == "recurrence":
        trigger.known(_TIMES | {"frequency", "interval", "schedule"}, "a recurrence trigger")
        _check_recurrence(trigger)
    else:
        hint = did_you_mean(type_, ("cron", "recurrence"), "types")
        trigger.wrong("type" if type_ else "", f"'{type_}' is no type of a trigger.", hint)


def _check_time(trigger: Section, key: str) -> None:
    written = trigger.data.get(key)
    if isinstance(written, str):
        try:
            datetime.fromisoformat(written)
        except ValueError:
            trigger.wrong(key, f"{shown_value(written)} is no time.", "Write 2030-01-31T10:00:00.")


def _check_cron(trigger: Section) -> None:
    fields = trigger.text("expression").split()
    if len(fields) != len(_CRON):
        message = f"{shown_value(trigger.data.get('expression'))} has {len(fields)} fields, and cron has five"
        trigger.wrong("expression", f"{message}: {', '.join(_CRON)}.", 'Write "0 * * * *" for every hour.')
        return
    for text, (name, (low, high)) in zip(fields, _CRON.items(), strict=True):
        numbers = [int(number) for number in re.findall(r"(?<!/)\b\d{1,9}\b", text)]
        if not re.fullmatch(r"[\w*/,-]+", text, re.ASCII) or any(not low <= one <= high for one in numbers):
            trigger.wrong("expression", f"'{text}' is no {name}: {low} to {high}, *, or a list, range or step of them.")


def _check_recurrence(trigger: Section) -> None:
    if "frequency" not in trigger:
        trigger.wrong("", "states no frequency.", f"One of {', '.join(_FREQUENCIES)}.")
    else:
        _check_word(trigger, "frequency", trigger.data["frequency"], _FREQUENCIES, "frequencies")
    if "interval" not in trigger:
        trigger.wrong("", "states no interval.", "Write interval: 1.")
    elif isinstance(interval := trigger.whole("interval"), int) and interval < 1:
        trigger.wrong("interval", f"{interval} is below the minimum of 1.")
    pattern = trigger.mapping("schedule")
    if "schedule" not in trigger:
        return
    pattern.known({*_RANGES, "week_days"}, "the schedule of a trigger")
    for key in ("hours", "minutes"):
        if key not in pattern:
            pattern.wrong("", f"states no {key}.", f"Write {key}: 0.")
    for key, (low, high) in _RANGES.items():
        for value in _listed(pattern, key):
            if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
                pattern.wrong(key, f"{shown_value(value)} is not from {low} to {high}.")
    for value in _listed(pattern, "week_days"):
        _check_word(pattern, "week_days", value, _WEEK_DAYS, "days")


def _listed(section: Section, key: str) -> list[object]:
    """One value or a list of them."""
    value = section.data.get(key)
    return value if isinstance(value, list) else [] if value is None else [value]


def _check_word(section: Section, key: str, value: object, words: tuple[str, ...], plural: str) -> None:
    if str(value).lower() not in words:
        section.wrong(key, f"{shown_value(value)} is none of the {plural}.", did_you_mean(str(value), words, plural))
