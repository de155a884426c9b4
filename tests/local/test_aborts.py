"""A rank that Python's end kills after its work: named, taken again a few times, and never a success."""

from __future__ import annotations

from pathlib import Path

from tests.local.support import allranks, pipeline, run_json, step

LINE = "echo terminate called without an active exception >&2"
ABORT = "kill -ABRT $$"
TWO = "distribution: {type: pytorch, process_count_per_instance: 2}"


def test_aborts_while_python_ended_are_repeated_and_others_are_failures(tmp_path: Path) -> None:
    once = f"test $RANK = 0 || test -e {tmp_path}/flag || {{ touch {tmp_path}/flag; echo done; {LINE}; {ABORT}; }}"
    commands = {
        "once": step(once, more=TWO),
        "always": step(f"bash -c '{LINE}; {ABORT}'; exit $?"),  # the outer shell says "Aborted" after it
        "silent": step(ABORT),
        "amid": step(f"{LINE}; echo more; {ABORT}"),
        "other": step(f"{LINE}; exit 3"),
    }
    steps = "\n".join(f"          {name}: {text}" for name, text in commands.items())
    file = pipeline(
        tmp_path,
        f"""
        type: pipeline
        settings: {{continue_on_step_failure: true}}
        jobs:
{steps}
        """,
    )
    result = run_json(file, cwd=tmp_path)
    assert result["exit"] == 1
    found = {
        name: (each["status"], each["attempts"], each.get("aborts_at_exit", 0))
        for name, each in result["steps"].items()
    }
    assert found == {
        "once": ("succeeded", 2, 1),
        "always": ("failed", 3, 2),
        "silent": ("failed", 1, 0),
        "amid": ("failed", 1, 0),
        "other": ("failed", 1, 0),
    }
    messages = {name: (each["failure"] or {}).get("message", "") for name, each in result["steps"].items()}
    assert "(killed by SIGABRT) while Python ended" in messages["always"]
    assert messages["silent"] == "the command was killed by SIGABRT"
    kept = Path(result["steps"]["once"]["folder"]) / "attempts/1/user_logs/std_log_process_1.txt"
    assert kept.read_text() == "done\nterminate called without an active exception\n"

    (tmp_path / "flag").unlink()
    file = pipeline(tmp_path, f"type: pipeline\njobs: {{once: {commands['once']}}}\n", "one.yaml")
    shown = allranks("run", file, "--no-cache", cwd=tmp_path)
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert "attempt 1 failed (rank 1 on node 0 was killed by SIGABRT while Python ended" in shown.stdout + shown.stderr
    assert "attempt repeated 1 times" in shown.stdout + shown.stderr
