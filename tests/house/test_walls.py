"""What each room may import, read from the files themselves: in functions and under TYPE_CHECKING too."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from fnmatch import fnmatch
from graphlib import CycleError, TopologicalSorter
from pathlib import PurePosixPath

import pytest

from allranks.renew.imports import SourceTree
from tests.helpers import ROOT

TREE = SourceTree(
    {
        file.relative_to(ROOT).as_posix(): file
        for folder in ("shared", "allranks", "components", "tools")
        for file in sorted((ROOT / folder).rglob("*.py"))
    }
)


@dataclass(frozen=True)
class Room:
    """Some files and what they may import.

    Attributes:
        files: a pattern; the first room that a file matches is its own.
        packages: packages besides the standard library's.
        later: packages that are imported in functions, or for their types, alone.
        ours: folders and modules of this tree; a file may always import those of its room and beside it.
    """

    files: str
    packages: str = ""
    later: str = ""
    ours: str = ""


CORE = (
    "shared/settings shared/distributed shared/checkpoint shared/data shared/models shared/training/core "
    "shared/training/augmentation shared/tracking shared/storage"
)
TORCH = f"{CORE} shared/training/torch"

ROOMS = (
    # On nodes. What is looked at before a framework is imported needs none.
    Room("shared/settings/*", ours="shared/distributed"),
    Room("shared/distributed/torch_group.py", "torch"),
    Room("shared/distributed/deepspeed_group.py", "torch", later="deepspeed"),
    Room("shared/distributed/horovod_group.py", later="torch horovod tensorflow"),
    Room("shared/distributed/tensorflow_group.py", "tensorflow"),
    Room("shared/distributed/lightning_cluster.py", "torch lightning"),
    Room("shared/distributed/*", later="torch"),
    Room("shared/checkpoint/tree.py", "numpy torch", ours="shared/distributed"),
    Room("shared/checkpoint*", later="numpy torch", ours="shared/distributed shared/storage shared/tensors"),
    Room("shared/tensors.py", later="numpy torch", ours="shared/storage"),
    Room("shared/tracking.py", later="mlflow", ours="shared/distributed shared/storage"),
    Room("shared/data/dataset/*", "numpy", later="PIL", ours="shared/distributed shared/storage"),
    Room(
        "shared/data/formats/*",
        "numpy",
        later="pyarrow PIL",
        ours="shared/data/dataset shared/data/sources shared/distributed shared/storage",
    ),
    Room(
        "shared/data/sources/*",
        "numpy",
        later="PIL pyarrow sklearn",
        ours="shared/data shared/distributed shared/storage",
    ),
    Room(
        "shared/data/text/*", "numpy", later="pyarrow tokenizers", ours="shared/data shared/distributed shared/storage"
    ),
    Room(
        "shared/data/*",
        "numpy",
        ours="shared/settings shared/data shared/distributed shared/tracking shared/storage",
    ),
    Room(
        "shared/models/keras/*",
        "numpy safetensors mlflow keras",
        later="tensorflow",
        ours="shared/models shared/storage",
    ),
    Room(
        "shared/models/transformers/*",
        "numpy safetensors mlflow torch",
        later="transformers tokenizers",
        ours="shared/models shared/storage",
    ),
    Room("shared/models/predictor.py", "numpy", later="torch", ours="shared/models shared/distributed"),
    Room(
        "shared/models/*",
        "numpy safetensors mlflow torch",
        ours="shared/copies shared/distributed shared/storage shared/tensors",
    ),
    Room(
        "shared/training/augmentation/*",
        "numpy",
        later="PIL",
        ours="shared/settings shared/distributed shared/data shared/training/core",
    ),
    Room("shared/training/core/*", "numpy", ours=CORE),
    Room("shared/training/torch/*", "numpy torch", later="horovod", ours=CORE),
    Room("shared/training/keras/*", "numpy keras tensorflow", later="horovod", ours=CORE),
    Room("shared/training/fsdp/*", "torch", ours=f"{TORCH}"),
    Room(
        "shared/training/deepspeed/*",
        "torch deepspeed pydantic",
        later="jinja2",
        ours=f"{TORCH}",
    ),
    Room("shared/training/lightning/*", "numpy torch lightning", ours=f"{TORCH}"),
    Room(  # its Trainer runs over DeepSpeed, whose parts the checkpoints are then made of
        "shared/training/transformers/*",
        "torch transformers safetensors",
        later="tokenizers",
        ours=f"{TORCH} shared/training/deepspeed shared/training/fsdp",
    ),
    Room("shared/cluster/*", later="numpy torch mpi4py matplotlib jinja2", ours="shared/distributed shared/storage"),
    Room(
        "shared/report/*",
        "numpy matplotlib",
        later="jinja2 tokenizers",
        ours="shared/data shared/metrics shared/language shared/storage",
    ),
    Room("shared/*", "numpy", ours="shared/data shared/storage"),
    # Scripts: what is wrong with the arguments is said before a framework is imported.
    Room("components/compare_models/*", "mldesigner", later="matplotlib"),
    Room("components/train_torchrun/*", ours="shared components/train_ddp"),
    Room("components/*", "numpy", later="torch keras tensorflow horovod lightning transformers", ours="shared"),
    # The tool: it reads and starts what runs on nodes, and imports none of it.
    Room("allranks/spec/*", "yaml", ours="allranks/errors allranks/sizes"),
    Room("allranks/sizes/*", later="yaml", ours="allranks/catalogue"),
    Room(
        "allranks/local/*",
        "yaml",
        later="jinja2 markupsafe optuna packaging scipy uv",
        ours="allranks/catalogue allranks/child_process allranks/errors allranks/files allranks/library "
        "allranks/log_text allranks/redaction allranks/request allranks/spec allranks/sizes allranks/wording",
    ),
    Room(
        "allranks/script/*",
        "yaml packaging",
        ours="allranks/errors allranks/files allranks/local allranks/request allranks/sizes allranks/spec",
    ),
    # Of a run it reads its files; pure functions for the rest.
    Room(
        "allranks/planning/*",
        ours="allranks/errors allranks/sizes allranks/spec",
    ),
    Room("allranks/azure/*", "yaml azure", ours="allranks"),
    Room("allranks/cli/*", "argcomplete packaging rich", ours="allranks"),
    Room("allranks/notebook/*", later="jinja2 IPython pandas", ours="allranks"),
    Room("allranks/renew/*", "yaml", ours="allranks"),
    Room("allranks/*", "packaging", later="yaml", ours="allranks"),
    # Programs for maintainers, outside of the wheel: nothing but tests imports them.
    Room("tools/*", "yaml", ours="allranks"),
)


def room_of(place: str) -> Room:
    return next(room for room in ROOMS if fnmatch(place, room.files))


def forbidden(place: str) -> list[str]:
    """The imports of a file that its room does not allow."""
    room, found = room_of(place), []
    for one in TREE.imports(place):
        package = one.name.partition(".")[0]
        target = TREE.place_of(one.name)
        if target is not None:
            beside = room_of(target) is room or PurePosixPath(target).parent == PurePosixPath(place).parent
            module = target.removesuffix(".py")
            allowed = beside or any(module == ours or module.startswith(f"{ours}/") for ours in room.ours.split())
        else:
            at_start = package in (*sys.stdlib_module_names, *room.packages.split())
            allowed = at_start or (one.moment != "start" and package in room.later.split())
        if not allowed:
            found.append(f"line {one.line}: {one.name}")
    return found


@pytest.mark.parametrize("folder", ["shared", "components", "allranks", "tools"])
def test_every_file_imports_what_its_room_may(folder: str) -> None:
    found = {place: wrong for place in TREE.files if place.startswith(folder) and (wrong := forbidden(place))}
    assert found == {}, "move what is imported, or change the table ROOMS if the room is meant to have it"


def test_no_cycle_among_files() -> None:
    imports = {place: TREE.targets(place, ("start", "call", "types")) for place in TREE.files}
    cycle: list[str] = []
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        cycle = error.args[1]
    assert cycle == [], "these files import each other"
