"""SM_HOSTS and SM_CURRENT_HOST: SageMaker starts the script once on each host, if the job has no distribution."""

from __future__ import annotations

import json

from shared.distributed.errors import LaunchError
from shared.distributed.families import Environ, LaunchClaim, shortened

_NAMES = ("SM_HOSTS", "SM_CURRENT_HOST")


def read_sagemaker(environ: Environ) -> LaunchClaim | None:
    """This process's place among the hosts, the first of which is the main one; None if it is not SageMaker's.

    Raises:
        LaunchError: one of the two variables is missing, or they do not fit together.
    """
    found = {name: environ[name] for name in _NAMES if name in environ}
    if not found:
        return None
    seen = ", ".join(f"{name}={shortened(value)}" for name, value in found.items())
    hosts = _hosts(found.get("SM_HOSTS", ""))
    current = found.get("SM_CURRENT_HOST")
    if not hosts or current not in hosts:
        raise LaunchError(
            f"{seen}: which of SageMaker's hosts this is cannot be told. SM_HOSTS has to be a JSON list of names, and "
            "SM_CURRENT_HOST one of them. Set both, or unset both to run a single process."
        )
    rank, count = hosts.index(current), len(hosts)
    return LaunchClaim("sagemaker", rank, count, 0, 1, rank, count, found, main_host=hosts[0])


def _hosts(text: str) -> list[str]:
    try:
        hosts: object = json.loads(text)
    except ValueError:
        return []
    return hosts if isinstance(hosts, list) and all(isinstance(host, str) for host in hosts) else []
