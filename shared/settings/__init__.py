"""The inputs of the components, each defined once: type, default, range, choices and text. The standard library alone.

`fields` says what an input is, `command_line` makes the script's arguments from a component's Settings, and
`python -m shared.settings` describes them for `allranks renew`, which writes component.yaml.
"""
