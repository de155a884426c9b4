"""The parts of a command that say where and how it runs: code, environment, distribution, resources, limits."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from allranks.spec import schema
from allranks.spec.distribution import CLOUD_ONLY_DISTRIBUTIONS, DISTRIBUTION_KINDS
from allranks.spec.document import yaml_kind
from allranks.spec.model import CountOrBinding, Distribution, Environment, Resources
from allranks.spec.section import Section, a_or_an, is_address
from allranks.spec.suggest import did_you_mean, nearest_name

# As get_asset_arm_id of azure-ai-ml reads it; the short name of a curated environment is left to the service.
_VERSIONLESS = re.compile(r"azureml:(?!AzureML-)[^:@/]+|azureml://registries/[^/]+/environments/[^/]+")


def read_code(section: Section) -> Path | None:
    """Read ``code``: an absolute folder or file, or None when the command needs no files."""
    value = section.data.get("code")
    if isinstance(value, dict):
        section.wrong("code", "is a mapping, as in the preview of Azure ML v2.", "Write code: ./src.")
        return None
    text = section.text("code")
    if not text:
        return None
    if text.startswith("git+") or is_address(text):
        message = f"cannot run here: '{text}' is not on this machine."
        section.wrong("code", message, "Give a local folder or file.", "elsewhere")
        return None
    return Path(section.local(text))


def read_includes(section: Section) -> tuple[Path, ...]:
    """Read ``additional_includes`` as absolute paths."""
    paths = []
    for index, item in enumerate(section.items("additional_includes")):
        place = f"additional_includes.{index}"
        if isinstance(item, str):
            paths.append(Path(section.local(item)))
        elif isinstance(item, dict) and item.get("type") == "artifact":
            message = "cannot run here: it is an Azure DevOps artifact."
            section.wrong(place, message, "Download it and give its path.", "elsewhere")
        else:
            section.wrong(place, f"is a {yaml_kind(item)}, and should be a path.")
    return tuple(paths)


def read_environment(section: Section) -> Environment:
    """Read ``environment``: a reference, an environment file, or one that is written in place."""
    value = section.data.get("environment")
    if isinstance(value, dict):
        inner = section.mapping("environment")
        inner.known(schema.ENVIRONMENT_KEYS, "an environment")
        build = inner.mapping("build")
        named = inner.text("image") or build.text("path")
        if not named and not isinstance(inner.data.get("conda_file"), dict):
            named = inner.text("conda_file")
        if not named:
            hint = "Write environment: azureml:NAME:VERSION or add an image."
            inner.wrong("", "has neither 'image' nor 'build'.", hint)
        name = named or inner.text("name") or "inline"
        return Environment(inline=name, document=MappingProxyType(inner.data), folder=section.source.base)
    text = section.text("environment")
    if not text:
        return Environment()
    if text.startswith("file:") or (not is_address(text) and text.endswith((".yml", ".yaml"))):
        if not text.startswith("file:"):
            section.wrong("environment", f"'{text}' is taken for a name by Azure ML.", f"Write file:{text}.")
        return Environment(file=Path(section.local(text)))
    if not is_address(text):
        hint = f"Write azureml:{text}." if ":" in text or "@" in text else f"Write azureml:{text}:VERSION."
        section.wrong("environment", f"'{text}' is neither a registered environment nor an environment file.", hint)
    elif _VERSIONLESS.fullmatch(text):
        versioned = f"{text}/versions/VERSION" if "//" in text else f"{text}:VERSION"
        section.wrong("environment", f"'{text}' states no version, and Azure ML refuses this.", f"Write {versioned}.")
    return Environment(reference=text)


def read_distribution(section: Section) -> Distribution | None:
    """Read ``distribution``; its type counts in any spelling of upper and lower case."""
    inner = section.mapping("distribution")
    if not inner.data:
        return None
    written = inner.text("type")
    type_ = written.lower().replace("_", "")
    if type_ in CLOUD_ONLY_DISTRIBUTIONS:
        *most, last = DISTRIBUTION_KINDS
        hint = f"Use {', '.join(most)} or {last}."
        inner.wrong("type", f"cannot run here: distribution of type '{type_}'.", hint, "elsewhere")
        return None
    if type_ not in DISTRIBUTION_KINDS:
        message = f"'{written}' is no distribution." if written else "states no type."
        inner.wrong("type" if written else "", message, did_you_mean(type_, DISTRIBUTION_KINDS, "distributions"))
        type_ = nearest_name(type_, DISTRIBUTION_KINDS) or ""
    if not type_:
        return None
    kind = DISTRIBUTION_KINDS[type_]
    others = {key for other in DISTRIBUTION_KINDS.values() for key in other.keys} - {*kind.keys}
    inner.known({"type", *kind.keys}, f"{a_or_an(type_)} distribution", dict.fromkeys(others, kind.other_keys))
    counts = ("process_count_per_instance", "worker_count", "parameter_server_count")
    return Distribution(type_, *(inner.whole(key) for key in counts))


def read_resources(section: Section, *, strict: bool = True) -> Resources:
    """Read ``resources``; ``strict`` refuses keys that a command's resources do not have."""
    inner = section.mapping("resources")
    if strict:
        inner.known(schema.RESOURCE_KEYS, "resources")
    return Resources(
        inner.whole("instance_count"),
        inner.text("instance_type") or None,
        inner.text("shm_size") or None,
        MappingProxyType(dict(inner.mapping("properties").data)),
    )


def read_timeout(section: Section) -> CountOrBinding:
    """Read ``limits.timeout`` in seconds."""
    inner = section.mapping("limits")
    inner.known({"timeout"}, "limits")
    return inner.whole("timeout")


def read_tier(section: Section) -> str | None:
    """Read ``queue_settings.job_tier``, in lower case; None for the tier that Azure ML takes by itself."""
    inner = section.mapping("queue_settings")
    inner.known(schema.QUEUE_KEYS, "queue settings")
    written = inner.text("job_tier").lower()
    if not written or written in schema.JOB_TIERS:
        return None if written in ("", "null") else written
    hint = did_you_mean(written, schema.JOB_TIERS, "tiers")
    inner.wrong("job_tier", f"'{inner.text('job_tier')}' is no tier of Azure ML.", hint)
    return nearest_name(written, schema.JOB_TIERS)


def check_services(section: Section) -> None:
    """Check the keys of ``services``, the interactive endpoints of a step; a local run has none of them."""
    services = section.mapping("services")
    for name in services:
        services.mapping(name).known(schema.SERVICE_KEYS, "a service")


def read_variables(section: Section) -> Mapping[str, str]:
    """Read ``environment_variables`` as texts."""
    inner = section.mapping("environment_variables")
    found = section.texts("environment_variables")
    for name in inner:
        if isinstance(inner.data[name], bool):
            message = f"YAML reads this as a boolean, and the variable becomes '{found[name]}'."
            inner.wrong(name, message, "Put it in quotes.", severity="warning")
    return MappingProxyType(found)


def read_version(section: Section) -> str:
    """Read ``version`` as text, which it should be."""
    found = section.text("version")
    written = section.source.texts.get(section.source.place(section.path("version")), found)
    if found and written != found:
        message = f"YAML reads the version {written} as a number, and Azure ML gets '{found}'."
        section.wrong("version", message, f'Write version: "{written}".', severity="warning")
    return found


def read_compute(section: Section) -> str | None:
    """Read ``compute`` as written, ``azureml:`` included; None for a mapping, which has no meaning here."""
    value = section.data.get("compute")
    return None if isinstance(value, dict) else section.text("compute") or None
