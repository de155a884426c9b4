"""What a run keeps of its pipeline is the pipeline."""

from __future__ import annotations

import json
import re

import pytest

from allranks import catalogue
from allranks.cli import target
from allranks.spec.keep import kept_document, kept_pipeline


@pytest.mark.parametrize("name", [*catalogue.PIPELINES, "train_ddp"])
def test_a_pipeline_is_kept_whole(name: str) -> None:
    pipeline = target.load_target(name)
    kept = kept_pipeline(json.loads(json.dumps(kept_document(pipeline))))
    assert kept == pipeline
    assert outline(repr(kept)) == outline(repr(pipeline)), "a tuple is no list, and a path no text"


def outline(text: str) -> str:
    """Without the proxies: a mapping within a mapping need not be frozen."""
    return re.sub(r"mappingproxy|[()]", "", text)


def test_what_another_version_kept_is_refused() -> None:
    document = kept_document(target.load_target("train_ddp"))
    for wrong in ({**document, "colour": 1}, {**document, "source": {"$kind": "Origin"}}, {"$kind": "Path"}):
        with pytest.raises(ValueError, match="not of this version"):
            kept_pipeline(wrong)
