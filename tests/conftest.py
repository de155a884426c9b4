"""What holds for the tests of every folder, whichever of them run."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from fnmatch import fnmatch

import pytest
from hypothesis import HealthCheck, settings

# The first text that is drawn builds a table of Unicode, once: seconds in a fresh clone on a loaded machine.
settings.register_profile("allranks", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("allranks")


RACES = (
    "tests/azure/test_*_faults.py",
    "tests/components/*",
    "tests/drill/*",
    "tests/environments/test_locks.py",
    "tests/local/environments/*",
    "tests/local/sweep/*",
    "tests/local/test_[cefhmprstu]*.py",
    "tests/shared/distributed/*",
    "tests/shared/test_*checkpoint*.py",
    "tests/shared/test_*storage*.py",
    "tests/shared/test_[fkrstw]*.py",
    "tests/test_promises.py",
)
"""Files whose tests are about faults, ports, resume, locks or results: where one fails once, the code may have a race."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--exhaustive", action="store_true", help="each promise with every framework and at every scale")


def all_is_asked_for(config: pytest.Config) -> bool:
    return bool(config.getoption("exhaustive")) or any("::" in argument for argument in config.args)


@pytest.fixture(scope="session", autouse=True)
def _unwatched() -> Iterator[None]:
    """Let nobody end pytest's own process: tests that meet as several ranks in its threads leave some of them waiting."""
    from shared.distributed import joining

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(joining.Heartbeat, "start", lambda _: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def _heard() -> None:
    """Let what tests start heed these, though pytest was told to ignore them: behind ``&`` in a script, under nohup."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


@pytest.fixture(scope="session")
def exhaustive(request: pytest.FixtureRequest) -> bool:
    """Whether a test goes through every scale and setting of its promise, or through those that differ most."""
    return all_is_asked_for(request.config)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests of RACES; leave out exhaustive tests unless all are asked for, or a test by its name."""
    for item in items:
        if any(fnmatch(item.nodeid.partition("::")[0], pattern) for pattern in RACES):
            item.add_marker("race")
    if all_is_asked_for(config):
        return
    left_out = [item for item in items if item.get_closest_marker("exhaustive")]
    if left_out:
        items[:] = [item for item in items if not item.get_closest_marker("exhaustive")]
        config.hook.pytest_deselected(items=left_out)
