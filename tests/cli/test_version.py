"""The version is printed; what raised it is named."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from allranks import library
from tests.cli.conftest import Called


def test_the_version_is_printed(cli: Callable[..., Called]) -> None:
    assert cli("version").out == f"{library.VERSION}\n"
    assert cli("version", "--json").json == {"version": library.VERSION}


@pytest.mark.parametrize(
    ("words", "instead"),
    [
        ("version --raise patch", "make bump PART=patch"),
        ("renew --locks", "make locks"),
        ("renew --locks --upgrade", "make locks"),
        ("renew --advisories", "make audit"),
        ("renew --advisories-from clone", "make audit"),
        ("renew --pipelines", "make renew"),
    ],
)
def test_a_removed_option_names_what_takes_its_place(cli: Callable[..., Called], words: str, instead: str) -> None:
    done = cli(*words.split())
    assert (done.code, done.out) == (2, "")
    assert f"{words.split()[1]} is removed" in done.err
    assert f"`{instead}`" in done.err
