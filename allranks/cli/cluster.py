"""``allranks cluster``: compute clusters, and the VM sizes that they can have."""

from __future__ import annotations

import argparse
import json
from typing import Any

from allranks.cli import text
from allranks.cli.inputs import add_workspace_arguments, workspace_of
from allranks.errors import UsageError
from allranks.sizes import VMSize, all_sizes, images_in_words
from allranks.spec.check_machines import LOW_PRIORITY, LOW_PRIORITY_HINT

HELP = "make a compute cluster, and list the VM sizes that people train on"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the commands and their arguments."""
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    create = commands.add_parser("create", help="make a cluster, or change the limits of one")
    create.add_argument("name", metavar="NAME", help="3 to 24 letters, digits and dashes")
    create.add_argument("--size", metavar="SIZE", required=True, help="VM size of the nodes: allranks cluster sizes")
    create.add_argument("--nodes", metavar="N", type=int, default=4, help="the most nodes (default: 4)")
    create.add_argument("--min-nodes", metavar="N", type=int, default=0, help="nodes that stay (default: 0)")
    create.add_argument("--low-priority", action="store_true", help=argparse.SUPPRESS)
    create.add_argument("--infiniband", action="store_true", help="refuse a size that has none")
    idle = "how long a node waits for work (default: 600)"
    create.add_argument("--idle", metavar="SECONDS", type=int, default=600, help=idle)
    create.add_argument("--dry-run", action="store_true", help="print the cluster's YAML, and make nothing")
    add_workspace_arguments(create)
    shown = commands.add_parser("sizes", help="the VM sizes: GPUs, their memory, InfiniBand")
    shown.add_argument("--infiniband", action="store_true", help="only those with InfiniBand")
    shown.add_argument("--gpu", metavar="MODEL", help="only those with this GPU, such as A100")
    shown.add_argument("--all", action="store_true", help="retired ones, too")
    for command in (create, shown):
        command.add_argument("--json", action="store_true", help="print one JSON document")


def run(args: argparse.Namespace) -> int:
    """Do what the command says."""
    return _sizes(args) if args.command == "sizes" else _create(args)


def _create(args: argparse.Namespace) -> int:
    from allranks.azure import clusters
    from allranks.azure.client import connect_workspace
    from allranks.azure.explain import service_errors

    if args.low_priority:
        raise UsageError(f"--low-priority: {LOW_PRIORITY}", LOW_PRIORITY_HINT)
    cluster = clusters.ComputeCluster(args.name, args.size, args.nodes, args.min_nodes, args.idle)
    if args.infiniband:
        clusters.require_infiniband(args.size)
    for note in clusters.cluster_notes(cluster):
        text.print_note(note)
    if args.dry_run:
        planned = {"status": "planned", "yaml": cluster.yaml()}
        print(json.dumps(planned, indent=1) if args.json else cluster.yaml(), end="")
        return 0
    place = workspace_of(args)
    with service_errors(f"making the cluster {cluster.name}", place):
        new = clusters.create_cluster(connect_workspace(place), cluster, text.print_note)
    status = "created" if new else "updated"
    if args.json:
        text.print_output({"status": status, "name": cluster.name, "size": cluster.size, "nodes": cluster.nodes})
    else:
        nodes = f"{cluster.min_nodes} to {cluster.nodes} nodes of {cluster.size}, dedicated"
        print(f"{status} {cluster.name} in {place}: {nodes}")
    return 0


def _sizes(args: argparse.Namespace) -> int:
    found = [size for size in all_sizes().values() if _is_asked_for(size, args)]
    if not found:
        models = ", ".join(dict.fromkeys(size.gpu for size in all_sizes().values() if size.gpu))
        raise UsageError("no size is like that.", f"The GPUs are {models}; --all includes retired sizes.")
    if args.json:
        text.print_output({"sizes": [_document(size) for size in found]})
    else:
        head = ["size", "GPUs", "GB each", "InfiniBand", "", "environments"]
        print(text.aligned_rows([head, *map(_cells, found)]))
    return 0


def _is_asked_for(size: VMSize, args: argparse.Namespace) -> bool:
    return (
        (args.all or not size.retired)
        and (not args.infiniband or size.infiniband > 0)
        and (not args.gpu or size.gpu.lower() == args.gpu.lower())
    )


def _cells(size: VMSize) -> list[str]:
    from allranks.pages import infiniband_words

    gpus = f"{size.gpus} {size.gpu}" if size.gpus else ""
    retired = f"retired {size.retired}" if size.retired else ""
    return [size.name, gpus, str(size.gpu_memory or ""), infiniband_words(size), retired, images_in_words(size)]


def _document(size: VMSize) -> dict[str, Any]:
    return {
        "name": size.name,
        "gpu": size.gpu or None,
        "gpus": size.gpus,
        "gpu_memory_gb": size.gpu_memory or None,
        "infiniband_gbps": size.infiniband,
        "environments": images_in_words(size) or None,
        "retired": size.retired or None,
        "source": size.source,
    }
