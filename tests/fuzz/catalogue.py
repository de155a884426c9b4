"""All that is fuzzed, by name."""

from __future__ import annotations

from tests.fuzz.model_folders import MODEL_TARGETS
from tests.fuzz.targets import TARGETS
from tests.fuzz.tool_folders import TOOL_TARGETS

ALL_TARGETS = {**TARGETS, **{target.name: target for target in (*TOOL_TARGETS, *MODEL_TARGETS)}}
"""Every reader of what others may have written."""
