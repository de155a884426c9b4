"""What an environment asks for, read from conda files, requirements, Dockerfiles and the names of Azure's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from allranks.errors import SpecError
from allranks.local.environments.conda import read_conda_specs
from allranks.local.environments.known import KNOWN_NAMES
from allranks.local.environments.pip_lines import is_named, line_name
from allranks.local.environments.recipe import known_recipe, read_recipe, recipe_of
from allranks.spec import read_pipeline


@pytest.mark.parametrize(
    ("spec", "requirement"),
    [
        ("numpy", "numpy"),
        ("numpy=1.26", "numpy==1.26.*"),
        ("numpy=1.26.*", "numpy==1.26.*"),
        ("numpy=1.26*", "numpy==1.26.*"),
        ("numpy==1.26.4", "numpy==1.26.4"),
        ("numpy=1.26.4=py311h64a7726_0", "numpy==1.26.4.*"),
        ("numpy 1.26.4", "numpy==1.26.4"),
        ("numpy 1.26.* py311_0", "numpy==1.26.*"),
        ("scikit-learn >= 1.0, < 2", "scikit-learn<2,>=1.0"),
        ("pandas~=1.5.3", "pandas~=1.5.3"),
        ("numpy=*", "numpy"),
        ("numpy[version='>=1.20']", "numpy>=1.20"),
        ("conda-forge::lightgbm=3.3", "lightgbm==3.3.*"),
        ("pytorch::pytorch=1.13", "torch==1.13.*"),
        ("msgpack-python", "msgpack"),
    ],
)
def test_a_package_of_condas_is_a_requirement_of_pips(spec: str, requirement: str) -> None:
    assert read_conda_specs([spec]) == ("", (requirement,), ())


def test_what_is_no_python_package_is_named_and_pip_and_python_are_not() -> None:
    specs = ["python=3.9", "pip=21", "cudatoolkit=11.3", "conda-forge::nodejs>=16", "r-base", "numpy"]
    assert read_conda_specs(specs) == (
        "3.9",
        ("numpy",),
        ("cudatoolkit=11.3", "conda-forge::nodejs>=16", "r-base"),
    )


@pytest.mark.parametrize(
    ("spec", "version"),
    [
        ("python", ""), ("python=3.8", "3.8"), ("python=3.8.13", "3.8"), ("python==3.10.4", "3.10"), ("python 3.9.*", "3.9"),
        ("python>=3.7,<3.12", "3.7"), ("python~=3.11", "3.11"), ("python<3.12", ""), ("python=3", ""),
    ],
)  # fmt: skip
def test_the_version_of_python(spec: str, version: str) -> None:
    assert read_conda_specs([spec])[0] == version


def test_a_package_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(SpecError, match="is no version"):
        read_conda_specs(["numpy=>!"])


def test_a_conda_file_beside_the_environment_with_lists_of_requirements(tmp_path: Path) -> None:
    (tmp_path / "conda" / "more").mkdir(parents=True)
    (tmp_path / "env.yml").write_text("name: rain\nimage: some/image\nconda_file: ./conda/env.yml\n")
    (tmp_path / "conda" / "env.yml").write_text(
        "name: other\nchannels: [conda-forge]\nvariables: {DEPTH: 3}\n"
        "dependencies:\n- python=3.11\n- pip\n- numpy=1.26\n"
        "- pip: [-r more/list.txt, '--extra-index-url https://index.test/simple', -e ., 'git+https://host.test/a/b.git@v1']\n"
    )
    (tmp_path / "conda" / "more" / "list.txt").write_text(
        "# a comment\nmlflow==2.9.2  # of its time\n-r rest.txt\n\n--find-links ./wheels\n"
    )
    (tmp_path / "conda" / "more" / "rest.txt").write_text("pandas \\\n  >=2\ntemplated=={{latest-pypi-version}}\n")
    recipe = read_recipe(tmp_path / "env.yml")
    assert recipe is not None
    assert (recipe.name, recipe.python, recipe.conda) == ("rain", "3.11", ("numpy==1.26.*",))
    assert recipe.pip == (
        "mlflow==2.9.2",
        "pandas    >=2",
        "templated",
        f"--find-links {tmp_path}/conda/more/wheels",
        "--extra-index-url https://index.test/simple",
        f"-e {tmp_path}/conda",
        "git+https://host.test/a/b.git@v1",
    )
    assert recipe.variables == {"DEPTH": "3"}
    assert recipe.packages == 6, "options are none"


def test_an_environment_in_place_starts_at_the_file_that_it_stands_in(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("tqdm\n")
    (tmp_path / "pipeline.yml").write_text(
        "type: pipeline\njobs:\n  a:\n    type: command\n    command: 'true'\n    environment:\n      image: i\n"
        "      conda_file: {name: mine, dependencies: [python=3.10, {pip: [-r list.txt]}]}\n"
    )
    environment = read_pipeline(tmp_path / "pipeline.yml").steps["a"].component.environment
    assert environment.document is not None
    assert environment.folder is not None
    recipe = recipe_of(environment.document, environment.folder)
    assert recipe is not None
    assert (recipe.name, recipe.python, recipe.pip) == ("mine", "3.10", ("tqdm",))


@pytest.mark.parametrize(
    ("document", "missing"),
    [
        ({"image": "i", "conda_file": "conda.yml"}, "conda.yml"),
        ({"build": {"path": "context"}}, "context/Dockerfile"),
        ({"image": "i", "conda_file": {"dependencies": [{"pip": ["-r gone.txt"]}]}}, "gone.txt"),
    ],
)
def test_a_file_that_is_not_there_is_refused_by_name(document: dict[str, object], missing: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        recipe_of(document, tmp_path)
    assert str(tmp_path / missing) in caught.value.message
    assert "No such file" in caught.value.message


DOCKERFILE = """\
FROM other/image AS first
RUN pip install never
FROM python:3.10-slim
ARG WHO=me
ENV DEPTH=3 HOME=/root \\
    MODE="a b"
ENV LD_LIBRARY_PATH $LD_LIBRARY_PATH:/x
# a comment
COPY lists/wanted.txt /tmp/
RUN apt-get update && apt-get install -y libgomp1 && rm -rf /var/lib/apt/lists/*
RUN python -m pip install --no-cache-dir -U pip 'numpy>=1.20,<2' \\
    # between
    --extra-index-url https://index.test/simple && \\
    pip install -r /tmp/wanted.txt
RUN ["pip", "install", "tqdm"]
RUN conda run -n base pip install not-this && conda install -y -c conda-forge msgpack-python=1.0
RUN make -C /opt/tool install
RUN pip install $WHO
RUN PIP_PRE=1 pip3 install --requirement=lists/wanted.txt -rlists/wanted.txt attrs==25.*
CMD ["python"]
"""


def test_a_dockerfile_as_far_as_it_is_plain(tmp_path: Path) -> None:
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists" / "wanted.txt").write_text("polars==1.2\n")
    (tmp_path / "Containerfile").write_text(DOCKERFILE)
    recipe = recipe_of({"name": "rain", "build": {"path": ".", "dockerfile_path": "Containerfile"}}, tmp_path)
    assert recipe is not None
    assert (recipe.name, recipe.python, recipe.conda) == ("rain", "3.10", ("msgpack==1.0.*",))
    assert recipe.pip == (
        "numpy>=1.20,<2",
        "--extra-index-url https://index.test/simple",
        "polars==1.2",
        "tqdm",
        "polars==1.2",
        "polars==1.2",
        "attrs==25.*",
    )
    assert recipe.variables == {"DEPTH": "3", "MODE": "a b"}
    assert recipe.unmet == ("apt-get install libgomp1", "make /opt/tool install", "pip install $WHO")


def test_a_dockerfile_over_an_image_of_azures(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(
        "FROM mcr.microsoft.com/azureml/curated/sklearn-1.5:9\nRUN pip install polars\n"
    )
    recipe = recipe_of({"build": {"path": str(tmp_path)}}, tmp_path)
    known = known_recipe("sklearn-1.5")
    assert recipe is not None
    assert known is not None
    assert (recipe.python, recipe.conda, recipe.pip) == ("3.10", known.conda, (*known.pip, "polars"))


@pytest.mark.parametrize(
    "text",
    ["FROM a\nENV\nRUN", 'RUN ["pip", 1]', 'FROM b\nRUN echo "a', "COPY\nRUN pip install -r", "", "FROM --x=y\nENV A"],
)
def test_a_dockerfile_that_makes_no_sense_is_no_traceback(text: str, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(text)
    recipe = recipe_of({"build": {"path": "."}}, tmp_path)
    assert recipe is None or recipe.unmet or not recipe.conda


def test_an_image_of_which_nothing_is_known_has_no_recipe(tmp_path: Path) -> None:
    assert recipe_of({"image": "ubuntu:24.04"}, tmp_path) is None
    (tmp_path / "Dockerfile").write_text("FROM ubuntu\nRUN apt-get install -y gcc\n")
    assert recipe_of({"build": {"path": "."}}, tmp_path) is None


@pytest.mark.parametrize(
    ("reference", "name"),
    [
        ("azureml://registries/azureml/environments/sklearn-1.5/labels/latest", "sklearn-1.5"),
        ("azureml://registries/azureml/environments/lightgbm-3.3/versions/9", "lightgbm-3.3"),
        ("azureml:AzureML-tensorflow-2.16-cuda12@latest", "tensorflow-2.16-cuda12"),
        ("azureml:AzureML-sklearn-1.0-ubuntu20.04-py38-cpu:3", "sklearn-1.0"),
        ("azureml:AzureML-ACPT-pytorch-2.8-cuda12.6@latest", "acpt-pytorch-2.8-cuda12.6"),
        ("mcr.microsoft.com/azureml/curated/sklearn-1.5:9", "sklearn-1.5"),
        ("sklearn-1.5", "sklearn-1.5"),
        ("sklearn-1.5x", ""),
        ("azureml:sklearn-1.5:1", ""),
        ("azureml://registries/ours/environments/sklearn-1.5/versions/9", ""),
        ("azureml:mine:1", ""),
        ("docker.io/someone/sklearn-1.5", ""),
    ],
)
def test_the_names_of_azures_environments(reference: str, name: str) -> None:
    recipe = known_recipe(reference)
    assert (recipe.name if recipe else "") == name
    assert name in (*KNOWN_NAMES, "")


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("Scikit_Learn>=1.0", "scikit-learn"),
        ("pkg[extra]==1 --hash=sha256:0", "pkg"),
        ("git+https://host.test/who/tool.git@v1", "tool"),
        ("git+https://host.test/who/Tool#subdirectory=deep/inner-part", "inner-part"),
        ("thing @ https://host.test/x.whl", "thing"),
        ("-e /somewhere/mine", "mine"),
    ],
)
def test_what_a_user_calls_a_line(line: str, name: str) -> None:
    assert line_name(line) == name
    assert is_named(name, line)
    assert not is_named("numpy", line)
