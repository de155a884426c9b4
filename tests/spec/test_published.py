"""What Microsoft publishes for Azure ML and azure-ai-ml takes is taken here too, and runs."""

from __future__ import annotations

from pathlib import Path

from allranks.spec import check_document, read_spec
from tests.local.support import pipeline, run_json

CONTROL = """
$schema: https://azuremlschemas.azureedge.net/latest/commandComponent.schema.json
type: command
name: decide
version: 1
outputs: {ok: {type: boolean, is_control: true}, rows: {type: integer, is_control: true}}
command: echo true > ${{outputs.ok}}; echo 7 > ${{outputs.rows}}
environment: azureml:e:1
"""
READER = """
$schema: https://azuremlschemas.azureedge.net/latest/commandComponent.schema.json
type: command
name: read
version: 1
inputs: {condition: {type: uri_file}, count: {type: uri_file}}
command: cat ${{inputs.condition}} ${{inputs.count}}
environment: azureml:e:1
"""


def test_a_control_output_is_a_file_for_a_file_input(tmp_path: Path) -> None:
    pipeline(tmp_path, CONTROL, "decide.yml")
    pipeline(tmp_path, READER, "read.yml")
    bound = "{condition: '${{parent.jobs.a.outputs.ok}}', count: '${{parent.jobs.a.outputs.rows}}'}"
    jobs = f"{{a: {{component: decide.yml}}, b: {{component: read.yml, inputs: {bound}}}}}"
    file = pipeline(tmp_path, f"type: pipeline\njobs: {jobs}\n")
    assert check_document(read_spec(file)) == []
    done = run_json(file, cwd=tmp_path)
    assert done["exit"] == 0
    (log,) = Path(done["run_dir"]).glob("steps/b/user_logs/std_log.txt")
    assert log.read_text().split() == ["true", "7"]


def test_an_entry_script_may_be_a_module_and_a_level_bound(tmp_path: Path) -> None:
    (tmp_path / "src" / "pkg").mkdir(parents=True)
    (tmp_path / "src" / "pkg" / "__init__.py").touch()
    (tmp_path / "src" / "pkg" / "names.py").write_text("def name_of(path): return path.split('/')[-1]\n")
    script = "from .names import name_of\ndef init(): pass\ndef run(batch): return [name_of(one) for one in batch]\n"
    (tmp_path / "src" / "pkg" / "main.py").write_text(script)
    text = """
        type: pipeline
        inputs: {lvl: DEBUG}
        jobs:
          a:
            type: parallel
            mini_batch_size: "1"
            input_data: ${{inputs.d}}
            inputs: {d: {type: uri_folder, path: ./src, mode: ro_mount}}
            outputs: {o: {type: uri_file}}
            max_concurrency_per_instance: 1
            logging_level: ${{parent.inputs.lvl}}
            task: {type: run_function, code: ./src, entry_script: pkg.main, environment: azureml:e:1, append_row_to: "${{outputs.o}}"}
    """
    done = run_json(pipeline(tmp_path, text), cwd=tmp_path)
    assert done["exit"] == 0
    assert done["steps"]["a"]["metrics"]["mini_batches"] == 3
    refused = run_json(tmp_path / "pipeline.yaml", "lvl=LOUD", cwd=tmp_path)
    assert refused["exit"] == 2
    assert "logging_level is 'LOUD'; it is one of DEBUG, INFO, WARNING" in refused["error"]["message"]


def test_assets_beside_components_are_notes(tmp_path: Path) -> None:
    from allranks.cli.main import main

    pipeline(tmp_path, "name: e\nversion: 1\nimage: x\n", "env.yml")
    pipeline(tmp_path, "name: d\nversion: 1\ntype: uri_file\npath: ./x.csv\n", "data.yml")
    assert main(["lint", str(tmp_path / "env.yml"), str(tmp_path / "data.yml")]) == 0
