"""The options with which several verbs name a workspace."""

from __future__ import annotations

import argparse
from typing import Any

from allranks.azure.client import Workspace, find_workspace


def add_workspace_arguments(parser: argparse.ArgumentParser, default: Any = None) -> None:
    """Declare ``--subscription``, ``--resource-group`` and ``--workspace``; variables and config.json stand in.

    Args:
        parser: of a verb, or of one of its commands.
        default: ``argparse.SUPPRESS`` for a command whose verb takes the same options.
    """
    group = parser.add_argument_group(
        "workspace", "default: AZUREML_ARM_SUBSCRIPTION, _RESOURCEGROUP and _WORKSPACE_NAME, or else config.json"
    )
    group.add_argument("--subscription", default=default, metavar="ID", help="the subscription of the workspace")
    group.add_argument("--resource-group", default=default, metavar="NAME", help="the resource group of the workspace")
    group.add_argument("--workspace", default=default, metavar="NAME", help="the workspace")


def workspace_of(args: argparse.Namespace) -> Workspace:
    """The workspace that the options, variables or config.json name; raises as ``find_workspace``."""
    return find_workspace(args.subscription, args.resource_group, args.workspace)
