"""Spark steps: what is submitted, where it writes, and what is refused; and the real Spark where it is installed."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from tests.local.support import allranks, pipeline, run_json

SUBMIT = f"""\
#!{sys.executable}
import os, subprocess, sys
words = sys.argv[1:]
at = next(index for index, word in enumerate(words) if word.endswith(".py"))
print(" ".join(words[:at]))
sys.exit(subprocess.call([sys.executable, *words[at:]]))
"""
"""Stands for the program of that name: it prints its options and runs the application."""

COUNT = """\
import argparse, os
parser = argparse.ArgumentParser()
parser.add_argument("--words")
parser.add_argument("--counted")
given = parser.parse_args()
os.mkdir(given.counted)  # as Spark does, which refuses a folder that is there
with open(given.words) as words, open(given.counted + "/part-0", "w") as counted:
    counted.write(str(len(words.read().split())))
"""
SPARK = COUNT.replace("import argparse, os\n", "import argparse, os\nfrom pyspark.sql import SparkSession\nspark = SparkSession.builder.getOrCreate()\n").replace(
    "os.mkdir(given.counted)", "spark.sparkContext.textFile(given.words).flatMap(str.split).saveAsTextFile(given.counted)"
).partition("with open")[0]  # fmt: skip

CONF = "{spark.driver.cores: 1, driver_memory: 512m, executor_cores: 1, executor_memory: 512m, executor_instances: 2}"
APPLICATION = f"""\
code: ./src
entry: {{file: count.py}}
py_files: [more.zip]
conf: {CONF}
args: --words ${{{{inputs.words}}}} --counted ${{{{outputs.counted}}}}
"""


def spark_files(folder: Path, script: str = COUNT) -> Path:
    """A component, a pipeline that uses it, and a folder with a spark-submit."""
    (folder / "src").mkdir()
    (folder / "src" / "count.py").write_text(script)
    (folder / "words.txt").write_text("to be or not to be")
    ports = "inputs: {words: {type: uri_file, mode: direct}}\noutputs: {counted: {type: uri_folder, mode: direct}}\n"
    (folder / "count.yaml").write_text("type: spark\nname: count\n" + ports + APPLICATION)
    bin_ = folder / "bin"
    bin_.mkdir()
    for name, text in (("spark-submit", SUBMIT), ("java", "#!/bin/sh\n")):
        (bin_ / name).write_text(text)
        (bin_ / name).chmod(0o755)
    return pipeline(
        folder,
        """
        type: pipeline
        inputs: {words: {type: uri_file, path: ./words.txt, mode: direct}}
        outputs: {counted: {type: uri_folder, mode: direct}}
        jobs:
          count:
            type: spark
            component: ./count.yaml
            conf: {driver_cores: 1, driver_memory: 1g, executor_cores: 1, executor_memory: 1g, executor_instances: 1}
            inputs: {words: '${{parent.inputs.words}}'}
            outputs: {counted: '${{parent.outputs.counted}}'}
            resources: {instance_type: standard_e4s_v3, runtime_version: "3.4"}
        """,
    )


def _path(folder: Path) -> str:
    return f"{folder / 'bin'}:/usr/bin:/bin"


def test_the_application_is_submitted_with_its_settings_and_makes_its_output(tmp_path):
    result = run_json(spark_files(tmp_path), cwd=tmp_path, PATH=_path(tmp_path))
    assert result["exit"] == 0, result
    assert Path(result["outputs"]["counted"], "part-0").read_text() == "6"
    options = Path(result["steps"]["count"]["folder"], "user_logs", "std_log.txt").read_text()
    assert options.startswith("--master local[1] --conf spark.driver.cores=1 --conf spark.driver.memory=1g")
    assert "--conf spark.driver.host=127.0.0.1 --py-files more.zip" in options


def test_a_component_and_a_job_run_by_themselves(tmp_path):
    spark_files(tmp_path)
    component = run_json("count.yaml", "words=words.txt", cwd=tmp_path, PATH=_path(tmp_path))
    assert Path(component["outputs"]["counted"], "part-0").read_text() == "6"
    head = "type: spark\ninputs: {words: {type: uri_file, path: ./words.txt, mode: direct}}\ncompute: azureml:pool\n"
    (tmp_path / "job.yaml").write_text(head + "outputs: {counted: {type: uri_folder, mode: direct}}\n" + APPLICATION)
    job = run_json("job.yaml", cwd=tmp_path, PATH=_path(tmp_path))
    assert Path(job["outputs"]["counted"], "part-0").read_text() == "6"


def test_without_spark_it_is_said_what_to_install(tmp_path):
    file = spark_files(tmp_path)
    (tmp_path / "bin" / "spark-submit").unlink()
    if Path(sys.executable).with_name("spark-submit").exists():
        pytest.skip("pyspark is installed beside this interpreter")
    refused = allranks("run", file, cwd=tmp_path, PATH=f"{tmp_path / 'bin'}")
    assert refused.returncode == 2
    assert "count: needs spark-submit, which is not there." in refused.stderr
    assert "pip install pyspark. Or name a Python with it: --python count=PATH" in refused.stderr
    assert not list(tmp_path.glob(".allranks/runs/*"))


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("spark-submit") or not shutil.which("java"), reason="Spark is not installed")
def test_the_real_spark_runs_it(tmp_path):
    result = run_json(spark_files(tmp_path, SPARK), cwd=tmp_path)
    assert result["exit"] == 0, result
    parts = Path(result["outputs"]["counted"]).glob("part-*")
    assert sorted(word for part in parts for word in part.read_text().split()) == ["be", "be", "not", "or", "to", "to"]


MISTAKES = [
    ("entry: {file: count.py}", "entry: {file: cuont.py}", "entry.file: there is no file 'cuont.py'"),
    ("entry: {file: count.py}", "entry: {class_name: Count}", "Azure ML runs no class of a jar."),
    ("entry: {file: count.py}\n", "", "states no entry."),
    ("[more.zip]", "[more.zip, more.zip]", "has a file twice; Azure ML refuses this."),
    ("driver_memory: 512m, ", "", "lacks spark.driver.memory, which Spark needs without dynamic allocation."),
    ("executor_instances: 2", "dynamic_allocation_enabled: true", "lacks spark.dynamicAllocation.minExecutors"),
    ("executor_instances: 2", "executor_instances: 2, dynamic_allocation_min_executors: 1", "without spark.dynamicAllocation.enabled"),
    ("executor_instances: 2", "dynamic_allocation_enabled: true, dynamic_allocation_min_executors: 3, dynamic_allocation_max_executors: 2", "lets 3 to 2 executors run"),
    ("executor_instances: 2", "executor_instances: 9, dynamic_allocation_enabled: true, dynamic_allocation_min_executors: 1, dynamic_allocation_max_executors: 2", "is 9, which is not from 1 to 2"),
    ("${{inputs.words}}", "${{inputs.word}}", "there is no input 'word'"),
    ("py_files:", "pyfiles:", "'pyfiles' is not a key of a Spark job"),
]  # fmt: skip
STEP_MISTAKES = [
    ('resources: {instance_type: standard_e4s_v3, runtime_version: "3.4"}', "tags: {}", "has neither 'compute' nor 'resources'."),
    ("resources: {instance", "compute: a\n    resources: {instance", "stands beside 'compute'"),
    ("standard_e4s_v3", "Standard_NC6", "'Standard_NC6' is no machine for Spark; these are: standard_e4s_v3"),
    (', runtime_version: "3.4"', "", "states no runtime_version"),
    ("'${{parent.inputs.words}}'", "{type: uri_file, path: ./words.txt, mode: ro_mount}", "has the mode 'ro_mount', and Spark takes direct only."),
]  # fmt: skip


def test_each_mistake_of_a_component_has_its_message(tmp_path):
    spark_files(tmp_path)
    good = (
        (tmp_path / "count.yaml")
        .read_text()
        .replace("{words: {type: uri_file,", "{words: {type: uri_file, path: ./words.txt,")
    )
    good += "compute: azureml:pool\n"  # so it is a job, of which the SDK checks more
    for number, (right, wrong, _) in enumerate(MISTAKES):
        assert right in good
        (tmp_path / f"wrong{number}.yaml").write_text(good.replace(right, wrong, 1))
    found = allranks("lint", ".", cwd=tmp_path).stdout.splitlines()
    for number, (*_, message) in enumerate(MISTAKES):
        said = [line for line in found if line.startswith(f"wrong{number}.yaml")]
        assert any(message in line for line in said), (message, said)
    assert [line for line in found if line.startswith(("count.yaml", "pipeline.yaml"))] == []


def test_each_mistake_of_a_step_has_its_message(tmp_path):
    good = spark_files(tmp_path).read_text()
    for number, (right, wrong, _) in enumerate(STEP_MISTAKES):
        assert right in good
        (tmp_path / f"wrong{number}.yaml").write_text(good.replace(right, wrong, 1))
    found = allranks("lint", ".", cwd=tmp_path).stdout.splitlines()
    for number, (*_, message) in enumerate(STEP_MISTAKES):
        said = [line for line in found if line.startswith(f"wrong{number}.yaml")]
        assert any(message in line for line in said), (message, said)
