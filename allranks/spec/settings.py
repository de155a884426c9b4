"""The parts of a command that say where and how it runs: code, environment, distribution, resources, limits."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from allranks.spec import schema
from allranks.spec.check_environment import check_environment_files
from allranks.spec.distribution import CLOUD_ONLY_DISTRIBUTIONS, DISTRIBUTION_KINDS
from allranks.spec.document import yaml_kind
from allranks.spec.expressions import find_references
from allranks.spec.needs import CountOrBinding, Distribution, Environment, Resources
from allranks.spec.section import Section, a_or_an, is_address, shown_value
from allranks.spec.suggest import did_you_mean, nearest_name
from allranks.spec.value_kinds import NO_VALUE

# As get_asset_arm_id of azure-ai-ml reads it; the short name of a curated environment is left to the service.
_VERSIONLESS = re.compile(r"azureml:(?!AzureML-)[^:@/]+|azureml://registries/[^/]+/environments/[^/]+")


def read_code(section: Section, *, is_component: bool = False) -> Path | None:
    """Read ``code``: an absolute folder or file, or None when the command needs no files."""
    value = section.data.get("code")
    if isinstance(value, dict):
        section.wrong("code", "is a mapping, as in the preview of Azure ML v2.", "Write code: ./src.")
        return None
    text = section.text("code")
    if not text:
        return None
    if text.startswith("git+") and is_component:
        section.wrong("code", f"'{text}' is a git path; azure-ai-ml takes one for a job alone.", "Give a local folder.")
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
        inner.known(schema.ENVIRONMENT_KEYS, "an environment", unchecked=("name", "version"))
        build = inner.mapping("build")
        check_environment_files(inner, build)
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
    if not is_address(text) or (section.source.file is not None and not text.startswith("azureml:")):
        hint = f"Write azureml:{text}." if ":" in text or "@" in text else f"Write azureml:{text}:VERSION."
        section.wrong("environment", f"'{text}' is neither a registered environment nor an environment file.", hint)
    elif _VERSIONLESS.fullmatch(text):
        versioned = f"{text}/versions/VERSION" if "//" in text else f"{text}:VERSION"
        section.wrong("environment", f"'{text}' states no version, and Azure ML refuses this.", f"Write {versioned}.")
    return Environment(reference=text)


def read_distribution(section: Section, *, is_open: bool = False) -> Distribution | None:
    """Read ``distribution``; its type counts in any spelling of upper and lower case.

    ``is_open``: whether Azure ML ignores other keys, as it does in a component.
    """
    inner = section.mapping("distribution")
    if not inner.data:
        if isinstance(section.data.get("distribution"), dict) and section.source.file is not None:
            inner.wrong("", "states no type.", f"The distributions are: {', '.join(DISTRIBUTION_KINDS)}.")
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
    inner.known(
        {"type", *kind.keys}, f"{a_or_an(type_)} distribution", dict.fromkeys(others, kind.other_keys), is_open=is_open
    )
    counts = ("process_count_per_instance", "worker_count", "parameter_server_count")
    return Distribution(type_, *(inner.whole(key) for key in counts))


def read_resources(section: Section, *, strict: bool = True, is_open: bool = False) -> Resources:
    """Read ``resources``; ``strict`` notes keys that a command's resources do not have, ``is_open`` as ignored ones."""
    inner = section.mapping("resources")
    if strict:
        inner.known(schema.RESOURCE_KEYS, "resources", is_open=is_open)
    return Resources(
        inner.whole("instance_count"),
        inner.text("instance_type") or None,
        inner.text("shm_size") or None,
        _docker_words(inner.data.get("docker_args")),
        MappingProxyType(dict(inner.mapping("properties").data)),
    )


def _docker_words(given: object) -> tuple[str, ...]:
    """``docker_args``, a text or a list of texts, as words; what no shell could divide is divided at its spaces."""
    lines = given if isinstance(given, list) else [given or ""]
    try:
        return tuple(word for line in lines for word in shlex.split(str(line)))
    except ValueError:
        return tuple(word for line in lines for word in str(line).split())


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
        service = services.mapping(name)
        service.known(schema.SERVICE_KEYS, "a service")
        service.whole("port")
        if services.data[name] is None and service.source.file is not None:
            services.wrong(name, NO_VALUE, "Write {type: ssh}, for example.")
        if service.text("nodes", "all") != "all" and "${{" not in service.text("nodes"):
            service.wrong("nodes", f"{shown_value(service.data['nodes'])} is not 'all', the only choice.")
        if service.source.file is not None and service.data.get("type") is not None:
            _choose(service, "type", schema.SERVICE_TYPES, "types of a service")


def check_cloud_keys(section: Section) -> None:
    """Check what only Azure looks at in a job or a step: ``services``, ``identity`` and ``properties``."""
    check_services(section)
    check_identity(section)
    _check_properties(section)


def _check_properties(section: Section) -> None:
    """Check that ``properties`` are texts; those of a component may be anything."""
    properties = section.data.get("properties")
    if section.source.file is None or not isinstance(properties, dict):
        return
    for name, value in properties.items():
        if value is not None and not isinstance(value, str):
            message = f"is a {yaml_kind(value)}, and should be a text."
            section.wrong(f"properties.{name}", message, "Put it in quotes.")


def check_identity(section: Section) -> None:
    """Check ``identity``, as whom a step reaches data on Azure; a local run has none."""
    identity = section.data.get("identity")
    if section.source.file is None or identity is None or (isinstance(identity, str) and find_references(identity)):
        return
    inner = section.mapping("identity")
    if not isinstance(identity, dict):
        return
    if type_ := _choose(inner, "type", schema.IDENTITY_KEYS, "types of an identity"):
        inner.known(schema.IDENTITY_KEYS[type_], f"an identity of type {type_}")


def _choose(inner: Section, key: str, choices: Iterable[str], plural: str) -> str:
    """Return which of the texts ``key`` holds, also as ``AMLToken`` for ``aml_token``; empty for none of them."""
    written = inner.text(key)
    by_folded = {choice.replace("_", ""): choice for choice in choices}
    if (folded := written.lower().replace("_", "")) in by_folded:
        return by_folded[folded]
    message = f"'{written}' is none of the {plural}." if written else "states no type."
    inner.wrong(key if written else "", message, did_you_mean(written, choices, plural))
    return ""


def check_resource_id(section: Section, key: str) -> None:
    """Check that what names a resource of the workspace begins with ``azureml:``; ``serverless`` is none."""
    text = section.data.get(key)
    if section.source.file is None or not isinstance(text, str):
        return
    if not text.startswith("azureml:") and not (key == "default_compute" and text.lower() == "serverless"):
        message = f"{shown_value(text)} does not begin with azureml:, and Azure ML refuses this."
        section.wrong(key, message, f"Write azureml:{text}.")


def read_variables(section: Section) -> Mapping[str, str]:
    """Read ``environment_variables`` as texts."""
    inner = section.mapping("environment_variables")
    found = section.texts("environment_variables")
    for name in inner:
        if isinstance(inner.data[name], bool):
            message = f"YAML reads this as a boolean, and the variable becomes '{found[name]}'."
            inner.wrong(name, message, "Put it in quotes.", severity="warning")
    return MappingProxyType(found)


def read_asset(section: Section, name: str) -> dict[str, Any]:
    """Read what a component of any kind says of itself, by the attributes of ``Component``, but for the name."""
    return {
        "name": name,
        "source": replace(section.source, prefix=section.where, problems=()),
        "version": read_version(section),
        "display_name": section.text("display_name"),
        "description": section.text("description"),
        "tags": MappingProxyType(section.texts("tags")),
        "is_deterministic": section.flag("is_deterministic") is not False,
    }


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
