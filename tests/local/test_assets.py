"""What lies in the cloud is mapped, found among what earlier runs registered, or refused with the way to map it."""

from __future__ import annotations

from pathlib import Path

import pytest

from allranks.errors import UsageError
from allranks.local.assets import MAP_FILE, CloudStandIns, read_mapping, register_asset
from allranks.local.folders import RunsHome
from tests.local.support import allranks, pipeline, run_json, step


def reading(folder: Path, address: str) -> Path:
    read = step(
        "cat ${{inputs.d}}/file > ${{outputs.o}}", inputs="d: '${{parent.inputs.d}}'", outputs="o: {type: uri_file}"
    )
    return pipeline(
        folder, f"type: pipeline\ninputs: {{d: {{type: uri_folder, path: '{address}'}}}}\njobs: {{read: {read}}}\n"
    )


def data(folder: Path, text: str = "mapped") -> Path:
    folder.mkdir(parents=True)
    (folder / "file").write_text(text)
    return folder


def what_was_read(result) -> str:
    assert result["exit"] == 0, result
    return Path(result["steps"]["read"]["outputs"]["o"]).read_text()


@pytest.mark.parametrize("key", ["azureml:mnist:3", "azureml:mnist"])
def test_a_data_asset_is_mapped_with_or_without_its_version(tmp_path, key):
    data(tmp_path / "mnist")
    assert (
        what_was_read(run_json(reading(tmp_path, "azureml:mnist:3"), "--map", f"{key}=mnist", cwd=tmp_path)) == "mapped"
    )


def test_the_mapping_file_beside_the_pipeline(tmp_path):
    data(tmp_path / "files/mnist")
    (tmp_path / MAP_FILE).write_text("azureml:mnist: files/mnist\n")
    assert what_was_read(run_json(reading(tmp_path, "azureml:mnist@latest"), cwd=tmp_path)) == "mapped"


def test_a_folder_of_a_datastore_serves_what_lies_below_it(tmp_path):
    data(tmp_path / "store/images/small")
    address = "azureml://datastores/blob/paths/images/small"
    option = f"azureml://datastores/blob/paths={tmp_path}/store"
    assert what_was_read(run_json(reading(tmp_path, address), "--map", option, cwd=tmp_path)) == "mapped"


def test_a_mapped_folder_is_not_left_upwards(tmp_path):
    stands = CloudStandIns({"https://host/data": tmp_path})
    with pytest.raises(UsageError, match="leads out of"):
        stands.find("https://host/data/../../etc/passwd")


def test_unmapped_data_is_refused_with_the_way_to_map_it(tmp_path):
    done = allranks("run", reading(tmp_path, "azureml:mnist:3"), cwd=tmp_path)
    assert done.returncode == 2
    assert "'azureml:mnist:3' lies in the cloud" in done.stderr
    assert "--map azureml:mnist:3=PATH, or a line REFERENCE: PATH in allranks-map.yaml" in done.stderr


@pytest.mark.parametrize(
    ("option", "words"), [("azureml:mnist", "REFERENCE=PATH"), ("azureml:mnist=nowhere", "does not exist")]
)
def test_a_bad_mapping_is_refused(tmp_path, option, words):
    with pytest.raises(UsageError, match=words):
        read_mapping([option], tmp_path)


def test_a_registered_component_is_mapped_to_a_file(tmp_path):
    hidden = tmp_path / ".elsewhere"  # where a checkout's own assets are not looked for
    hidden.mkdir()
    (hidden / "say.yaml").write_text(
        "name: say\nversion: '1'\ntype: command\nenvironment: azureml:x:1\ncommand: echo hi > ${{outputs.o}}\n"
        "outputs: {o: {type: uri_file}}\n"
    )
    file = pipeline(tmp_path, "type: pipeline\njobs: {read: {type: command, component: 'azureml:say:1'}}\n")
    assert what_was_read(run_json(file, "--map", "azureml:say=.elsewhere/say.yaml", cwd=tmp_path)) == "hi\n"
    refused = allranks("run", file, cwd=tmp_path)
    assert refused.returncode == 2
    assert "azureml:say:1" in refused.stderr


def test_what_a_step_registers_can_be_used_by_the_next_run(tmp_path):
    writes = step("echo kept > ${{outputs.o}}/file", outputs="o: {type: uri_folder, name: my_data}")
    first = pipeline(tmp_path, f"type: pipeline\njobs: {{write: {writes}}}\n", "first.yaml")
    assert run_json(first, cwd=tmp_path)["exit"] == 0
    for reference in ("azureml:my_data:1", "azureml:my_data@latest"):
        assert what_was_read(run_json(reading(tmp_path, reference), cwd=tmp_path)) == "kept\n"
    assert allranks("run", reading(tmp_path, "azureml:my_data:2"), cwd=tmp_path).returncode == 2


def test_versions_count_up_and_the_newest_is_the_latest(tmp_path):
    home = RunsHome(tmp_path)
    assert [register_asset(home, "a", None, data(tmp_path / str(n)), "uri_folder") for n in range(3)] == ["1", "2", "3"]
    assert CloudStandIns({}, home).find("azureml:a@latest") == tmp_path / "2"
    assert CloudStandIns({}, home).find("azureml:a:2") == tmp_path / "1"
