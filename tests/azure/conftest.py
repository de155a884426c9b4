"""The stand-in for Azure, a workspace in it that is ready for jobs, and a quick SDK, for every test of this folder."""

from tests.azure.quick_sdk import forked_readers, libyaml, started_reader
from tests.azure.registering import small_library
from tests.azure.stand_in.fixture import azure_server, stand_in
from tests.azure.submitting import cli, clock, ready, small

__all__ = [
    "azure_server",
    "cli",
    "clock",
    "forked_readers",
    "libyaml",
    "ready",
    "small",
    "small_library",
    "stand_in",
    "started_reader",
]
