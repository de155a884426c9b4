"""Whether a pipeline job says where its steps run. A matter for ``lint``: ``submit --compute`` says it as well."""

from __future__ import annotations

from collections.abc import Iterator

from allranks.errors import Problem
from allranks.spec.model import Component, Pipeline
from allranks.spec.schema import JOB


def check_compute(document: Component | Pipeline) -> list[Problem]:
    """An error where a step of a pipeline job has no compute and there is no default: Azure ML refuses the job.

    The rule is that of ``_validate_compute_is_set`` in azure-ai-ml: of a nested pipeline it asks the steps themselves.
    A pipeline whose ``$schema`` does not say that it is a job may be a component, of which this is not asked.
    """
    if not isinstance(document, Pipeline) or document.kind != JOB or document.settings.default_compute:
        return []
    without = list(_without_compute(document))
    if not without:
        return []
    message = (
        f"no compute is stated for {', '.join(without[:5])}{', …' if len(without) > 5 else ''}; Azure ML refuses this."
    )
    hint = "Write settings: {default_compute: serverless}, or submit with --compute NAME."
    return [document.source.problem("settings", message, hint)]


def _without_compute(pipeline: Pipeline, prefix: str = "") -> Iterator[str]:
    for name, step in pipeline.steps.items():
        if isinstance(step.component, Pipeline):
            yield from _without_compute(step.component, f"{prefix}{name}.")
        elif not step.compute and step.has_component:
            yield prefix + name
