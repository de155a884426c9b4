"""The stand-in for Azure, and a workspace in it that is ready for jobs, for every test of this folder."""

from tests.azure.stand_in.fixture import azure_server, stand_in
from tests.azure.submitting import cli, ready, small

__all__ = ["azure_server", "cli", "ready", "small", "stand_in"]
