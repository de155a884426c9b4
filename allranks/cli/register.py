"""``allranks register``: environments, components and pipelines into a workspace or a registry."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from allranks import catalogue, library
from allranks.azure.client import AssetPlace, require_sdk
from allranks.cli import text
from allranks.errors import AllranksError, UsageError

if TYPE_CHECKING:
    from allranks.azure.library_asset import LibraryAsset
    from allranks.azure.register import PlannedAsset, RegistrationPlan

HELP = "register components, pipelines and their environments in a workspace or a registry"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    names = "names from `allranks list`, or a component or pipeline of yours: its folder or YAML (default: the library)"
    parser.add_argument("names", metavar="NAME", nargs="*", help=names)
    place = parser.add_mutually_exclusive_group()
    workspace = "a workspace; without NAME that of AZUREML_ARM_WORKSPACE_NAME or config.json"
    place.add_argument("--workspace", metavar="NAME", nargs="?", const="", help=workspace)
    place.add_argument("--registry", metavar="NAME", help="a registry, which several workspaces share")
    parser.add_argument("--subscription", metavar="ID", help="the subscription of the workspace")
    parser.add_argument("--resource-group", metavar="NAME", help="the resource group of the workspace")
    version = "the version of a pipeline of yours whose YAML has none (default: that of its components)"
    parser.add_argument("--pipeline-version", metavar="VERSION", default="", help=version)
    parser.add_argument("--dry-run", action="store_true", help="print what would be done, and send nothing")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(args: argparse.Namespace) -> int:
    """Publish what is not there yet; 2 if something differs from what is published under this version."""
    _check(args)
    require_sdk("`allranks register`")
    from allranks.azure import register, register_assets
    from allranks.azure.explain import service_errors

    assets = register_assets.find_assets(args.names, args.pipeline_version)
    if args.workspace is None and args.registry is None:
        return _list_assets(assets, as_json=args.json)
    named = AssetPlace("registry", args.registry) if args.registry else AssetPlace("workspace", args.workspace or "")
    with service_errors("asking what is registered", named):
        client, place = _connect(args)
        plan = register.plan_registration(client, place, assets, _tell)
    if not args.dry_run:
        register.require_unchanged(plan)
    elif not args.json:
        print(_plan_table(plan))
    published: list[PlannedAsset] = []

    def done(row: PlannedAsset) -> None:
        published.append(row)
        if not args.json:
            print(f"published {_kind(row)} {row.asset.name} {row.asset.version}", flush=True)

    if not args.dry_run:
        try:
            with service_errors("registering", place):
                register.publish_assets(client, plan, done, _tell)
        except AllranksError as error:
            so_far = f"{len(published)} of {len(plan.with_action('publish'))} were published."
            raise type(error)(f"{error.message} {so_far}", error.hint) from None
    text.print_output(
        _plan_document(plan, dry_run=args.dry_run) if args.json else _plan_summary(plan, dry_run=args.dry_run)
    )
    return 2 if plan.with_action("refused") else 0


def _list_assets(assets: Sequence[LibraryAsset], *, as_json: bool) -> int:
    """A dry run without a place: what there is to register, in which order; nobody is asked."""
    if as_json:
        listed = [{"kind": one.kind, "name": one.name, "version": one.version, "action": None} for one in assets]
        text.print_output({"place": None, "version": library.VERSION, "dry_run": True, "assets": listed})
    else:
        print("to register, in this order; with --workspace or --registry it is compared with what is there")
        print(text.aligned_rows([[asset.kind, asset.name, asset.version] for asset in assets]))
    return 0


def _plan_table(plan: RegistrationPlan) -> str:
    """The plan for people: what, which version, what would be done, why."""
    head = ["", "asset", "version", "action", "why"]
    rows = [[_kind(row), row.asset.name, row.asset.version, row.action, row.why] for row in plan.rows]
    return text.aligned_rows([head, *rows])


def _plan_document(plan: RegistrationPlan, *, dry_run: bool) -> dict[str, Any]:
    """The plan as it is printed with ``--json``; without ``dry_run`` what was to be published has been."""
    return {
        "place": {"kind": plan.place.kind, "name": plan.place.name},
        "version": library.VERSION,
        "dry_run": dry_run,
        "assets": [
            {
                "kind": _kind(row).replace(" ", "_"),
                "name": row.asset.name,
                "version": row.asset.version,
                "action": row.action,
                "why": row.why,
                "id": plan.place.id_of(row.asset.family, row.asset.name, row.asset.version),
            }
            for row in plan.rows
        ],
        "notes": _plan_notes(plan),
    }


def _plan_summary(plan: RegistrationPlan, *, dry_run: bool) -> str:
    """The last lines: how much was, or would be, done, and what a person should know or do next."""
    counts = {action: len(plan.with_action(action)) for action in ("publish", "unchanged", "refused")}
    words = {"publish": "to publish" if dry_run else "published", "unchanged": "unchanged", "refused": "refused"}
    said = [f"{count} {words[action]}" for action, count in counts.items() if count]
    versions = ", ".join(dict.fromkeys(row.asset.version for row in plan.rows))
    lines = [f"{plan.place}, version {versions}: {', '.join(said)}", *_plan_notes(plan)]
    own = [row for row in plan.with_action("refused") if row.asset.own_version]
    if own:
        lines.append(f"published versions never change; raise {own[0].asset.how_to_raise}")
    elif counts["refused"]:
        lines.append("published versions never change; raise that of this checkout: make bump PART=patch")
    return "\n".join(lines)


def _plan_notes(plan: RegistrationPlan) -> list[str]:
    """What gets lost on the way, because a pipeline component cannot have it."""
    lost = {row.asset.name: row.asset.dropped for row in plan.rows if row.asset.dropped}
    if not lost:
        return []
    settings = ", ".join(dict.fromkeys(name for names in lost.values() for name in names))
    return [f"note: a pipeline component takes {settings} from the pipeline that it is put into ({', '.join(lost)})"]


def _check(args: argparse.Namespace) -> None:
    if args.workspace is None and args.registry is None and not args.dry_run:
        hint = "Give --workspace [NAME] or --registry NAME; --dry-run alone lists what there is to register."
        raise UsageError("where to register is not said.", hint)
    if args.registry is not None and (args.subscription or args.resource_group):
        message = "--subscription and --resource-group are about a workspace; a registry is found by its name."
        raise UsageError(message, "Leave them out.")
    if args.workspace in (*catalogue.COMPONENTS, *catalogue.PIPELINES) and not args.names:
        message = f"{args.workspace!r} is something to register, and was taken for the name of the workspace."
        raise UsageError(message, f"Write: allranks register {args.workspace} --workspace")


def _connect(args: argparse.Namespace) -> tuple[Any, AssetPlace]:
    """The client, and the place that it leads to; asks whether that is there."""
    from allranks.azure.client import connect_registry, connect_workspace, find_workspace

    if args.registry is not None:
        return connect_registry(args.registry), AssetPlace("registry", args.registry)
    workspace = find_workspace(args.subscription, args.resource_group, args.workspace)
    client = connect_workspace(workspace)
    client.workspaces.get(workspace.name)  # else every asset of a workspace that is not there would seem to be new
    return client, AssetPlace("workspace", workspace.name)


def _kind(row: PlannedAsset) -> str:
    return "pipeline component" if row.asset.kind == "pipeline" else row.asset.kind


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
