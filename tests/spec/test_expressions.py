"""Commands are filled in as Azure ML does it, whatever the names and values."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allranks.errors import UsageError
from allranks.spec.expressions import bracket_faults, near_references, render_command, single_quoted_inputs

NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}(\.[A-Za-z_][A-Za-z0-9_]{0,8})?", fullmatch=True)
STEPS = st.from_regex(r"[a-z_][a-z0-9_-]{0,8}", fullmatch=True)
PLAIN = st.text(alphabet=st.characters(blacklist_characters="${}[]"), max_size=20)


@given(st.lists(st.tuples(PLAIN, NAMES, st.booleans()), max_size=6), st.data())
def test_nothing_is_left_to_fill_in(parts, data):
    command = "".join(
        f"{text}$[[--flag ${{{{inputs.{name}}}}}]]" if optional else f"{text} ${{{{inputs.{name}}}}}"
        for text, name, optional in parts
    )
    inputs: dict[str, str | None] = {name: data.draw(PLAIN) for _, name, _ in parts}
    left_out = {name for _, name, _ in parts} - {name for _, name, optional in parts if not optional}
    inputs |= {name: None for name in left_out if data.draw(st.booleans())}
    rendered = render_command(command, inputs, {})
    assert "${{" not in rendered
    assert "$[[" not in rendered
    assert rendered.count("--flag") == sum(optional and inputs[name] is not None for _, name, optional in parts)


def test_a_command_with_everything():
    command = "run ${{inputs.a}} $[[--b ${{inputs.b}}]] $[[--c '${{inputs.c}}' ${{inputs.a}}]] > ${{outputs.o}}/${{search_space.s}}"
    inputs = {"a": "1", "b": None, "c": "x y", "s": "3"}
    assert render_command(command, inputs, {"o": "/out"}) == "run 1  --c 'x y' 1 > /out/3"


def test_a_value_is_not_read_again():
    assert render_command("echo ${{inputs.a}}", {"a": "${{inputs.b}} $[[x]]"}, {}) == "echo ${{inputs.b}} $[[x]]"


def test_the_older_path_of_an_input():
    assert render_command("cat ${{inputs.data.path}}", {"data": "/d"}, {}) == "cat /d"
    assert render_command("cat ${{inputs.group.path}}", {"group.path": "/d", "group": "no"}, {}) == "cat /d"


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("${{inputs.missing}}", r"\$\{\{inputs.missing\}\} has no value"),
        ("${{inputs.none}}", r"\$\{\{inputs.none\}\} has no value"),
        ("${{parent.inputs.a}}", "cannot stand in a command"),
        ("${{inputs.}}", "cannot stand in a command"),
        ("$[[${{name}}]]", "cannot stand in a command"),
        ("${{inputs.a}", "is not closed by '}}'"),
        ("$[[--a ${{inputs.a}}", "is not closed by ']]'"),
    ],
)
def test_what_cannot_be_filled_in_is_refused(command, message):
    with pytest.raises(UsageError, match=message):
        render_command(command, {"a": "1", "none": None}, {})


@pytest.mark.parametrize(
    "text", ["echo $HOME ${A} $(date) {{x}} [[ -f y ]]", "${{inputs.a}}]]", "awk '{print $1}'", "a[1]]"]
)
def test_the_shell_keeps_its_own_brackets(text):
    assert bracket_faults(text) == []
    assert render_command(text, {"a": "1"}, {}) == text.replace("${{inputs.a}}", "1")


@pytest.mark.parametrize(
    "text", ["${{inputs.x}}", "${{ outputs.x }}", "$${inputs.x}", "${HOME} {{question}} {inputs.x}"]
)
def test_what_is_a_reference_or_the_shell_s_own_is_not_almost_one(text):
    assert list(near_references(text)) == []


@pytest.mark.parametrize(
    ("command", "quoted"),
    [
        ("a '${{inputs.x}}' ${{inputs.y}}", {"x"}),
        ("a \"'${{inputs.x}}'\"", set()),
        ("a \\'${{inputs.x}}\\'", set()),
        ("a 'b\\' ${{inputs.x}} '${{inputs.y}}'", {"y"}),
        ("# don't\na '${{inputs.x}}'\nb#'${{inputs.y}}'", {"x", "y"}),
        ("a $[[--x '${{inputs.x}}']] '--${{search_space.s}}-${{outputs.o}}'", {"x", "s"}),
    ],
)
def test_which_inputs_stand_in_single_quotes(command, quoted):
    assert single_quoted_inputs(command) == quoted


@given(st.text(alphabet=st.characters(blacklist_characters="'\0\n\r", blacklist_categories=("Cs",)), max_size=30))
def test_in_single_quotes_any_text_without_one_is_a_single_word(value):
    rendered = render_command("p '${{inputs.x}}'", {"x": value}, {})
    assert shlex.split(rendered) == ["p", value]
