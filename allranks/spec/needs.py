"""What a command needs in order to run, as its YAML says it: processes, machines, and what is installed on them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

CountOrBinding: TypeAlias = int | str | None
"""A number, a binding to one, or None where the YAML is silent."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """How the ranks of a step are started.

    Attributes:
        type: ``pytorch``, ``mpi`` or ``tensorflow`` (lower case).
        processes_per_node: ranks on each node, or a binding; None where the YAML is silent (Azure ML then starts 1).
        worker_count: tensorflow only; None means one worker for each node.
        parameter_server_count: tensorflow only.
    """

    type: str
    processes_per_node: CountOrBinding = None
    worker_count: CountOrBinding = None
    parameter_server_count: CountOrBinding = None

    @property
    def counts(self) -> dict[str, CountOrBinding]:
        """Its numbers by the YAML's keys."""
        return {
            "process_count_per_instance": self.processes_per_node,
            "worker_count": self.worker_count,
            "parameter_server_count": self.parameter_server_count,
        }


@dataclass(frozen=True, slots=True)
class Resources:
    """The machines that a step asks for; None means that the YAML is silent. ``docker_args`` are words."""

    nodes: CountOrBinding = None
    instance_type: str | None = None
    shm_size: str | None = None
    docker_args: tuple[str, ...] = ()
    properties: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Environment:
    """What a command runs in: exactly one of the three is the user's; all None when the YAML is silent.

    Attributes:
        reference: ``azureml:name:version``, ``azureml:name@label`` or a registry address, with its ``azureml:`` kept.
        file: an environment YAML that was named by path; in a plan also the one that describes the ``reference``.
        inline: name of the image, Dockerfile or conda file of an environment written in place.
        document: all that an environment written in place says.
        folder: where the relative paths in ``document`` start.
    """

    reference: str | None = None
    file: Path | None = None
    inline: str | None = None
    document: Mapping[str, Any] | None = None
    folder: Path | None = None

    @property
    def described(self) -> str:
        """What it is, for people: the reference, the file's path, or what was written in place as JSON."""
        if self.reference or self.file:
            return self.reference or str(self.file)
        return json.dumps(self.document, default=str) if self.document else self.inline or ""
