"""What ``allranks doctor`` says of packages and of Azure, from metadata: nothing heavy is imported."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from allranks.library import install_command

WORKS, MISSING, BROKEN = "works", "missing", "broken"
"""``missing`` is what only some runs need; with anything ``broken`` no run works."""

_FRAMEWORKS = (
    *("torch", "tensorflow", "tensorflow-cpu", "keras", "transformers", "lightning", "deepspeed", "horovod"),
    *("mlflow", "mlflow-skinny"),
)
_EXTRAS = ("torch", "evaluate", "tracking", "sweep", "text", "deepspeed", "lightning", "tensorflow", "mpi", "azure")
_AZURE_SECONDS = 20.0
_VARIABLES = ("AZURE_CLIENT_ID", "AZUREML_RUN_ID", "IDENTITY_ENDPOINT")
_ASKING = (
    "from azure.identity import DefaultAzureCredential as C; "
    "C().get_token('https://management.azure.com/.default'); print('a token was given')"
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at: its state, what was found, and the command or step that mends it."""

    name: str
    status: str
    found: str
    mend: str = ""


def installed_version(package: str) -> str:
    """The version of a package that is installed beside allranks; empty for none."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def framework_finding() -> Finding:
    """The frameworks that there are, with their versions."""
    found = {name: version for name in _FRAMEWORKS if (version := installed_version(name))}
    if not found:
        return Finding("frameworks", MISSING, "none", f"Install one: {install_command('local')}")
    return Finding("frameworks", WORKS, ", ".join(f"{name} {version}" for name, version in found.items()))


def extra_findings() -> Iterator[Finding]:
    """Each extra of ours: the packages that it lacks, by their names and versions."""
    wanted = _wanted_by_extras()
    for extra in _EXTRAS if wanted else ():
        lacking = wanted.get(extra, [])
        if lacking:
            yield Finding(f"extra {extra}", MISSING, f"without {', '.join(lacking)}", install_command(extra))
        else:
            yield Finding(f"extra {extra}", WORKS, "installed")


def _wanted_by_extras() -> Mapping[str, list[str]]:
    """What each extra lacks; empty where allranks itself has not been installed."""
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        lines = metadata.requires("allranks") or []
    except metadata.PackageNotFoundError:
        return {}
    lacking: dict[str, list[str]] = {}
    for line in lines:
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue
        for extra in _EXTRAS:
            if requirement.marker is None or not requirement.marker.evaluate({"extra": extra}):
                continue
            lacking.setdefault(extra, [])
            version = installed_version(requirement.name)
            if not version or not requirement.specifier.contains(version, prereleases=True):
                lacking[extra].append(f"{requirement.name}{requirement.specifier} ({version or 'not installed'})")
    return lacking


def azure_finding() -> Finding:
    """The Azure ML SDK."""
    version = installed_version("azure-ai-ml")
    if not version:
        return Finding("azure sdk", MISSING, "azure-ai-ml is not installed", install_command("azure"))
    return Finding(
        "azure sdk", WORKS, f"azure-ai-ml {version}, azure-identity {installed_version('azure-identity') or 'none'}"
    )


def sign_in_finding(*, ask: bool) -> Finding:
    """Traces of a sign-in; whether Azure still takes it, only Azure knows."""
    if ask:
        return _asked_azure()
    profile = Path(os.environ.get("AZURE_CONFIG_DIR") or Path.home() / ".azure") / "azureProfile.json"
    traces = [name for name in _VARIABLES if os.environ.get(name)]
    if profile.is_file() and '"id"' in profile.read_text(encoding="utf-8-sig", errors="replace"):
        traces.append(str(profile))
    if traces:
        return Finding("azure sign-in", WORKS, f"{', '.join(traces)}; `allranks doctor --azure` asks Azure")
    return Finding("azure sign-in", MISSING, "no trace of one", "To submit and register: az login")


def _asked_azure() -> Finding:
    try:
        done = subprocess.run(
            [sys.executable, "-c", _ASKING], capture_output=True, text=True, timeout=_AZURE_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return Finding("azure sign-in", MISSING, f"Azure gave no token within {_AZURE_SECONDS:g} s", "az login")
    if done.returncode == 0:
        return Finding("azure sign-in", WORKS, done.stdout.strip())
    said = [line for line in done.stderr.splitlines() if re.match(r"[\w.]+(Error|Unavailable)\b", line)]
    return Finding("azure sign-in", MISSING, said[-1] if said else "azure-identity gave no token", "az login")
