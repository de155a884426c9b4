"""What the YAML says of a parallel step: mini batches of one input, each given to a function of the entry script."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields, replace
from typing import ClassVar

from allranks.spec.model import Component, Source
from allranks.spec.needs import CountOrBinding

LOGGING_LEVELS = ("DEBUG", "INFO", "WARNING")
_SIZE = re.compile(r"(\d{1,18})(kb|mb|gb)?", re.IGNORECASE | re.ASCII)
_UNITS = {"": 1, "kb": 2**10, "mb": 2**20, "gb": 2**30}
_TASK_PLACES = {"command": "task.program_arguments", "code": "task.code", "environment": "task.environment"}


class TaskSource(Source):
    """A source whose command, code and environment stand below ``task``."""

    def place(self, where: str) -> str:
        """Return ``where`` as a dotted path of the whole document."""
        return super().place(_TASK_PLACES.get(where, where))


@dataclass(frozen=True, slots=True)
class ParallelSettings:
    """How mini batches are made and what becomes of those that fail; None where the YAML is silent.

    Attributes:
        input_data: the input that is divided.
        mini_batch_size: files, or bytes of a table, as written: a number with ``kb``, ``mb`` or ``gb``.
        error_threshold: items that may fail, -1 for all; ``mini_batch_error_threshold`` the same of mini batches.
        max_retries: of a mini batch; ``timeout`` is in seconds and of one call of ``run``.
        partition_keys: a mini batch is then all data that have the same values of these columns.
    """

    input_data: str | None = None
    mini_batch_size: str | None = None
    error_threshold: CountOrBinding = None
    mini_batch_error_threshold: CountOrBinding = None
    max_concurrency_per_instance: CountOrBinding = None
    max_retries: CountOrBinding = None
    timeout: CountOrBinding = None
    logging_level: str | None = None
    partition_keys: tuple[str, ...] | None = None

    def over(self, other: ParallelSettings) -> ParallelSettings:
        """These settings, with another's where these are silent."""
        said = {one.name: getattr(self, one.name) for one in fields(self)}
        return replace(other, **{name: value for name, value in said.items() if value is not None})

    @property
    def numbers(self) -> dict[str, CountOrBinding]:
        """Its numbers, and the size, by the YAML's keys."""
        return {
            "mini_batch_size": self.mini_batch_size,
            "error_threshold": self.error_threshold,
            "mini_batch_error_threshold": self.mini_batch_error_threshold,
            "max_concurrency_per_instance": self.max_concurrency_per_instance,
            "retry_settings.max_retries": self.max_retries,
            "retry_settings.timeout": self.timeout,
        }


@dataclass(frozen=True, slots=True)
class ParallelComponent(Component):
    """A parallel component, or the task that stands on a parallel step; its command is the program arguments.

    Attributes:
        entry_script: relative to the code.
        append_row_to: the output that gets what ``run`` returns; empty where it is only counted.
    """

    noun: ClassVar[str] = "parallel component"
    step_kind: ClassVar[str] = "parallel"
    entry_script: str = ""
    append_row_to: str = ""
    settings: ParallelSettings = field(default_factory=ParallelSettings)


def batch_size(text: str) -> int | None:
    """The number that a ``mini_batch_size`` means, 10240 for ``10kb``; None for a text that is none.

    The SDK's rule (``entities/_builders/parallel.py``): digits, and at most one unit.
    """
    match = _SIZE.fullmatch(text)
    return int(match[1]) * _UNITS[(match[2] or "").lower()] if match else None
