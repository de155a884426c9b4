"""All that a run imports sooner or later: what a template for engines imports."""

from __future__ import annotations

import packaging.requirements  # noqa: F401

import allranks.cli.live
import allranks.cli.live_table
import allranks.cli.main
import allranks.cli.run
import allranks.local.kinds.command
import allranks.local.warm.client
import allranks.local.warm.context
import allranks.local.warm.templates
import allranks.script.target  # noqa: F401
from allranks.local.page.render import prepare_templates

prepare_templates()
