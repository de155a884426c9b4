"""The page of a run in its folder: written while it goes on and at its end; one file that needs nothing else."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from allranks.files import write_text
from allranks.local.folders import RunFolder, write_json_file
from allranks.local.page.document import page_document, run_document
from allranks.local.page.model import page_model
from allranks.local.page.render import render_page
from allranks.local.record_shapes import read_json_file
from allranks.local.result import RUNNING
from allranks.local.tracking.reading import TrackingReader

_FIRST_PAGE, _NEXT_PAGE = 1.0, 2.0  # seconds from the start of a run, and between two pages of it


class RunningPage:
    """The page of a run that goes on: written when it is a second old, and again every few seconds."""

    def __init__(self, run: RunFolder) -> None:
        self._run = run
        self._due = time.monotonic() + _FIRST_PAGE

    def look(self, state: Callable[[], dict[str, Any]]) -> None:
        """Write what run.json would say now, rarely enough to take no more than a fiftieth of the time."""
        began = time.monotonic()
        if began < self._due:
            return
        write_run_page(self._run, state())
        ended = time.monotonic()
        self._due = ended + max(_NEXT_PAGE, 50 * (ended - began))


def write_run_page(run: RunFolder, state: dict[str, Any] | None = None) -> None:
    """Write report.html, whole or not at all, from what run.json says if no other state is given.

    At its end the run's document is kept too, in page.json: reading all curves anew takes long where they are long.
    """
    state = state or read_json_file(run.state)
    with TrackingReader(run.home) as reader:
        document = run_document(run, state, reader)
    write_text(run.report, run_page(run, document), follow_links=False)
    if state["status"] != RUNNING:
        write_json_file(page_document(run), document)


def run_page(run: RunFolder, document: Mapping[str, Any], *, served: bool = False) -> str:
    """The page of a run's document, as HTML."""
    shown = {**page_model(run, document), "written": time.strftime("%H:%M:%S")}
    return render_page("run.html", document, shown, served=served, follows=document["status"] == RUNNING)
