"""One value against one input."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allranks.errors import Problem
from allranks.spec import Component, Data, Input, check_value
from allranks.spec.model import Source
from allranks.spec.values import check_command_values


@pytest.mark.parametrize(
    ("type_", "value", "typed"),
    [
        ("integer", "10", 10),
        ("integer", 10.0, 10),
        ("integer", "10.0", 10),
        ("integer", " -3 ", -3),
        ("number", "1e-3", 0.001),
        ("number", 1, 1),
        ("boolean", "True", True),
        ("boolean", "false", False),
        ("boolean", True, True),
        ("string", True, "True"),
        ("string", 1.5, "1.5"),
        ("string", "", ""),
        ("uri_folder", "./rows", Data("./rows")),
        ("mltable", Data("azureml:rows:1"), Data("azureml:rows:1")),
    ],
)
def test_sound_values_get_the_type_of_the_input(type_, value, typed):
    found = check_value(Input("x", type_), value)
    assert found == typed
    assert type(found) is type(typed)


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ("integer", "abc"),
        ("integer", "2.5"),
        ("integer", True),
        ("integer", ""),
        ("integer", "\u0661"),
        ("integer", "1_000"),
        ("integer", "1e999"),
        ("number", "nan"),
        ("number", float("inf")),
        ("number", False),
        ("boolean", "yes"),
        ("boolean", 1),
        ("uri_folder", ""),
        ("uri_folder", 3),
        ("string", Data("./rows")),
    ],
)
def test_other_values_are_problems(type_, value):
    assert isinstance(check_value(Input("x", type_), value), Problem)


@given(st.integers(), st.integers(-100, 100), st.integers(-100, 100))
def test_ranges_include_their_ends(value, low, high):
    found = check_value(Input("x", "integer", min=low, max=high), str(value))
    assert isinstance(found, Problem) == (not low <= value <= high)


def test_a_quote_is_refused_only_inside_single_quotes(tmp_path):
    component = Component("c", Source(None, tmp_path), command="a '${{inputs.x}}' \"${{inputs.y}}\"")
    (problem,) = check_command_values(component, {"x": "it's", "y": "it's", "z": None, "n": 3})
    assert problem.where == "inputs.x"
    (problem,) = check_command_values(component, {"x": Data("/home/o'neil")})
    assert "would end the quoting" in problem.message
