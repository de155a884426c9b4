"""Mistakes that people make in components and pipelines, each with the message that they get."""

from __future__ import annotations

import pytest

from allranks.spec import check_document, read_spec

HEAD = "type: command\nname: mine\nversion: '1'\n"
TAIL = "environment: azureml:e:1\ncommand: python a.py\n"
ONE = "type: pipeline\njobs:\n  train:\n    type: command\n    component: ./train.yaml\n"
TWO = (
    "type: pipeline\njobs:\n  prepare:\n    type: command\n    component: ./prepare.yaml\n"
    "  train:\n    type: command\n    component: ./train.yaml\n    inputs:\n"
)
DATA = "    inputs: {data: {path: ./rows}}\n"


def component(inputs: str = "", tail: str = TAIL) -> str:
    return HEAD + (f"inputs:\n  a: {inputs}\n" if inputs else "") + tail


def step(settings: str) -> str:
    return ONE + DATA + settings


def wiring(inputs: str, top: str = "") -> str:
    return f"{TWO}      {inputs}\n{top}"


def registered(settings: str) -> str:
    return f"jobs:\n  t: {{component: 'azureml:other:1', {settings}}}\n"


DATA_BOUND = "data: ${{parent.jobs.prepare.outputs.data}}"

IN_PLACE = "type: pipeline\ninputs: {n: 2}\njobs:\n  a:\n    command: x\n    environment: azureml:e:1\n"

# fmt: off
MISTAKES = [
    # YAML itself
    ("syntax", "type: command\nname: [\n", "", "is not YAML:"),
    ("tab", "type: command\n\tname: x\n", "", "is not YAML:"),
    ("empty", "", "", "is empty."),
    ("list at the top", "- type: command\n", "", "is a list at the top; a component or pipeline is a mapping of keys to values."),
    ("own tag", HEAD + TAIL + "description: !secret x\n", "description", "'!secret' is no type that Azure ML's YAML has."),
    ("self-containing anchor", HEAD + TAIL + "tags: &a {x: *a}\n", "tags.x", "an anchor contains itself."),
    ("list for mapping", HEAD + TAIL + "inputs: [a, b]\n", "inputs", "is a list, and should be a mapping of names to values."),
    ("mapping for text", HEAD + TAIL + "description: {a: b}\n", "description", "is a mapping, and should be a text."),
    # What the SDK refuses or cannot send
    ("date of a pipeline", step("inputs: {day: 2024-01-01}\n"), "inputs.day", "YAML reads 2024-01-01 as a date, and azure-ai-ml cannot send one. Write '2024-01-01' in quotes."),
    ("date of a step", wiring("data: ${{parent.jobs.prepare.outputs.data}}\n      epochs: 2024-01-01 10:00:00"), "jobs.train.inputs.epochs", "YAML reads 2024-01-01 10:00:00 as a date"),
    ("date in a component", component("{type: string, default: 2024-01-01}", TAIL + "  ${{inputs.a}}"), "inputs.a.default", "YAML reads 2024-01-01 as a date"),
    ("date as a tag", component() + "tags: {made: 2024-01-01}\n", "tags.made", "YAML reads 2024-01-01 as a date"),
    ("bound nodes in place", IN_PLACE + "    resources: {instance_count: '${{parent.inputs.n}}'}\n", "jobs.a.resources.instance_count", "azure-ai-ml takes a number on a step with its command in place. Move the command to a file"),
    ("bound processes in place", IN_PLACE + "    distribution: {type: pytorch, process_count_per_instance: '${{parent.inputs.n}}'}\n", "jobs.a.distribution.process_count_per_instance", "azure-ai-ml takes a number on a step with its command in place."),
    ("bound timeout in place", IN_PLACE + "    limits: {timeout: '${{parent.inputs.n}}'}\n", "jobs.a.limits.timeout", "azure-ai-ml takes a number on a step with its command in place."),
    ("comment in place", IN_PLACE + "    comment: x\n", "jobs.a.comment", "'comment' is not a key of a step with a command."),
    ("early_available", component() + "outputs: {o: {type: uri_folder, early_available: true}}\n", "outputs.o.early_available", "'early_available' is not a key of an output."),
    ("search space of a component", component("{type: number}", TAIL + "  ${{search_space.a}} ${{inputs.a}}"), "command", "${{search_space.a}} is for a trial that is written in place in a sweep."),
    ("git code of a component", component() + "code: git+https://github.com/a/b#main\n", "code", "is a git path; azure-ai-ml takes one for a job alone."),
    ("port of a trial in place", "type: pipeline\njobs:\n  s:\n    type: sweep\n    inputs: {seed: 1}\n    search_space: {x: {type: uniform, min_value: 0, max_value: 1}}\n    objective: {primary_metric: m, goal: maximize}\n    sampling_algorithm: random\n    limits: {max_total_trials: 2}\n    trial: {command: 'echo ${{search_space.x}}', environment: 'azureml:e:1'}\n", "jobs.s.inputs.seed", "A trial written in place declares its own inputs: write seed below trial, in inputs."),
    ("bound end of a search", "type: pipeline\njobs:\n  s:\n    type: sweep\n    inputs: {data: {path: ./rows}}\n    search_space: {rate: {type: uniform, min_value: '${{parent.inputs.n}}', max_value: 1}}\n    objective: {primary_metric: m, goal: maximize}\n    sampling_algorithm: random\n    limits: {max_total_trials: 2}\n    trial: ./train.yaml\n", "jobs.s.search_space.rate.min_value", "'${{parent.inputs.n}}' is a binding; Azure ML takes none here."),
    # The document
    ("neither", "name: x\n", "", "has neither 'jobs' nor 'command', so it is no pipeline and no command component."),
    ("other type", "type: automl\nname: x\n", "type", "cannot run here: a component of type 'automl', which allranks neither runs nor checks."),
    ("misspelt type", "type: comand\nname: x\n", "type", "'comand' is the type of no component or pipeline. Did you mean 'command'?"),
    ("misspelt type of another component", "type: parallell\nname: x\n", "type", "'parallell' is the type of no component or pipeline. Did you mean 'parallel'?"),
    ("unknown pipeline key", step("experimentname: x\n"), "experimentname", "'experimentname' is not a key of a pipeline. Did you mean 'experiment_name'?"),
    ("settings value", step("settings: {force_rerun: maybe}\n"), "settings.force_rerun", "'maybe' is neither true nor false."),
    ("no steps", "type: pipeline\njobs: {}\n", "jobs", "has no steps. A pipeline lists its steps below 'jobs'."),
    ("jobs and component", step("component: ./inner.yaml\n"), "component", "stands beside 'jobs', and Azure ML refuses a job with both. Take one of them out."),
    ("older key of a service", step("    services: {s: {job_service_type: ssh, ssh_public_keys: k}}\n"), "jobs.train.services.s.job_service_type", "'job_service_type' is not a key of a service. Did you mean 'type'?"),
    ("service of a command", "jobs:\n  a: {command: x, environment: 'azureml:e:1', services: {s: {type: ssh, key: k}}}\n", "jobs.a.services.s.key", "'key' is not a key of a service."),
    ("name", component().replace("mine", "My-Component"), "name", "'My-Component' is no component's name: lower-case letters, digits and underscores"),
    ("no name", TAIL, "name", "has no name. Write name: my_component."),
    # Declarations
    ("python type", component("{type: float}"), "inputs.a.type", "'float' is no type of Azure ML. Did you mean 'number'?"),
    ("misspelt type of input", component("{type: uri_foldr}"), "inputs.a.type", "'uri_foldr' is no type of Azure ML. Did you mean 'uri_folder'?"),
    ("no type", component("{default: 3}"), "inputs.a", "states no type. The types are: string, integer, number, boolean, uri_file"),
    ("bare value", component("5"), "inputs.a", "is a number; an input of a component states its type. Write a: {type: integer, default: 5}."),
    ("input key", component("{type: integer, maximum: 5}"), "inputs.a.maximum", "'maximum' is not a key of an input. Did you mean 'max'?"),
    ("mode", component("{type: uri_folder, mode: ro-mount}"), "inputs.a.mode", "'ro-mount' is none of the modes. Did you mean 'ro_mount'?"),
    ("default of another type", component("{type: integer, default: abc}"), "inputs.a.default", "the default 'abc' is not an integer."),
    ("default a boolean", component("{type: integer, default: true}"), "inputs.a.default", "the default true is not an integer."),
    ("default outside", component("{type: integer, default: 11, max: 10}"), "inputs.a.default", "the default 11 is above the maximum of 10 (at most 10)."),
    ("default below", component("{type: number, default: -0.5, min: 0, max: 1}"), "inputs.a.default", "the default -0.5 is below the minimum of 0 (0 to 1)."),
    ("min above max", component("{type: integer, min: 5, max: 3}"), "inputs.a.min", "min 5 is above max 3, so no value is allowed."),
    ("min of a string", component("{type: string, min: 1}"), "inputs.a.min", "'min' applies to integers and numbers, and this is a string."),
    ("min no number", component("{type: integer, min: few}"), "inputs.a.min", "'few' is not a number."),
    ("unquoted choices", component("{type: string, enum: [true, false]}"), "inputs.a.enum.0", "true is not a text. Write 'true' in quotes."),
    ("enum of a boolean", component('{type: boolean, enum: ["true"]}'), "inputs.a.enum", "'enum' does not apply to a boolean."),
    ("enum no integer", component('{type: integer, enum: ["1", "b"]}'), "inputs.a.enum.1", "the choice 'b' is not an integer."),
    ("default of data", component("{type: uri_folder, default: ./rows}"), "inputs.a.default", "an input of type uri_folder has no default in Azure ML."),
    ("enum of data", component("{type: uri_folder, enum: [x]}"), "inputs.a.enum", "'enum' does not apply to an input of type uri_folder; it takes a path."),
    ("keyword", HEAD + "inputs:\n  lambda: {type: number}\n" + TAIL, "inputs.lambda", "'lambda' is a keyword of Python, so the port cannot be used from Python."),
    ("port name", HEAD + "inputs:\n  a-b: {type: number}\n" + TAIL, "inputs.a-b", "'a-b' is no name of a port: letters, digits and underscores"),
    ("same but for case", HEAD + "outputs:\n  Model: {type: uri_folder}\n  model: {type: uri_folder}\n" + TAIL, "outputs.model", "'Model' and 'model' differ in case only, and Azure ML takes them for one."),
    ("output without type", HEAD + "outputs:\n  model: {mode: upload}\n" + TAIL, "outputs.model", "states no type."),
    ("quote in a default", component("{type: string, default: it's}", TAIL + "  '${{inputs.a}}'"), "inputs.a.default", "the default 'it's' has a single quote in it, which would end the quoting in the command."),
    # The command
    ("no command", HEAD + "environment: azureml:e:1\n", "command", "has no command. Write command: python my_script.py."),
    ("no environment", HEAD + "command: python a.py\n", "environment", "has no environment, which Azure ML demands."),
    ("environment without azureml", HEAD + "command: x\nenvironment: torch:1\n", "environment", "'torch:1' is neither a registered environment nor an environment file. Write azureml:torch:1."),
    ("environment without a version", HEAD + "command: x\nenvironment: azureml:torch\n", "environment", "'azureml:torch' states no version, and Azure ML refuses this. Write azureml:torch:VERSION."),
    ("registry environment without a version", HEAD + "command: x\nenvironment: azureml://registries/r/environments/torch\n", "environment", "Write azureml://registries/r/environments/torch/versions/VERSION."),
    ("environment file", HEAD + "command: x\nenvironment: file:./env.yaml\n", "environment", "there is no file '"),
    ("environment file without file:", HEAD + "command: x\nenvironment: ./train.yaml\n", "environment", "'./train.yaml' is taken for a name by Azure ML. Write file:./train.yaml."),
    ("environment without image", HEAD + "command: x\nenvironment: {os_type: linux}\n", "environment", "has neither 'image' nor 'build'."),
    ("unknown input in the command", component("{type: string}", TAIL + "  ${{inputs.b}}${{inputs.a}}"), "command", "${{inputs.b}}: there is no input 'b'."),
    ("near input in the command", HEAD + "inputs:\n  epochs: {type: integer}\n" + TAIL + "  ${{inputs.epoch}}", "command", "${{inputs.epoch}}: there is no input 'epoch'. Did you mean 'epochs'?"),
    ("unknown word", component("{type: string}", TAIL + "  ${{input.a}} ${{inputs.a}}"), "command", "${{input.a}} means nothing in a command. Did you mean 'inputs'?"),
    ("parent in a command", component("{type: string}", TAIL + "  ${{parent.inputs.a}} ${{inputs.a}}"), "command", "${{parent.inputs.a}} means nothing in a command."),
    ("open expression", component("{type: string}", TAIL + "  ${{inputs.a} ${{inputs.a}}"), "command", "opens an expression that is not closed by '}}'."),
    ("open optional", component("{type: string}", TAIL + "  $[[--a ${{inputs.a}}]"), "command", "'$[[--a ${{inputs.a}}]' opens an optional part that is not closed by ']]'."),
    ("optional outside", component("{type: string, optional: true}", TAIL + "  --a ${{inputs.a}}"), "command", "${{inputs.a}} is optional, and stands outside $[[ ]]; Azure ML refuses this. Write $[[--a '${{inputs.a}}']]."),
    # Files
    ("code missing", HEAD + TAIL + "code: ./nowhere\n", "code", "there is no file or folder '"),
    ("include missing", HEAD + TAIL + "code: ./src\nadditional_includes: [../nowhere]\n", "additional_includes.0", "there is no file or folder '"),
    ("include twice", HEAD + TAIL + "code: ./src\nadditional_includes: [./common, ./src/../common/.]\n", "additional_includes.1", "would both become 'common' in the snapshot."),
    ("include on code", HEAD + TAIL + "code: .\nadditional_includes: [./common]\n", "additional_includes.0", "'common' is already in the code folder '"),
    ("artifact", HEAD + TAIL + "additional_includes: [{type: artifact, name: x}]\n", "additional_includes.0", "cannot run here: it is an Azure DevOps artifact."),
    # Nodes and ranks
    ("distribution", HEAD + TAIL + "distribution: {type: pytorhc}\n", "distribution.type", "'pytorhc' is no distribution. Did you mean 'pytorch'?"),
    ("ray", HEAD + TAIL + "distribution: {type: ray}\n", "distribution.type", "cannot run here: distribution of type 'ray'."),
    ("no processes", HEAD + TAIL + "distribution: {type: mpi, process_count_per_instance: 0}\n", "distribution.process_count_per_instance", "0 is below the minimum of 1: the number of processes on each node."),
    ("processes no number", HEAD + TAIL + "distribution: {type: mpi, process_count_per_instance: two}\n", "distribution.process_count_per_instance", "'two' is not a whole number."),
    ("binding in a component", HEAD + "inputs:\n  n: {type: integer}\n" + TAIL + "  ${{inputs.n}}\nresources: {instance_count: '${{inputs.n}}'}\n", "resources.instance_count", "'${{inputs.n}}' is a binding, and Azure ML takes a number here."),
    ("no nodes", step("    resources: {instance_count: 0}\n"), "jobs.train.resources.instance_count", "0 is below the minimum of 1: the number of nodes."),
    ("shm_size", step("    resources: {shm_size: 2 GB}\n"), "jobs.train.resources.shm_size", "'2 GB' is no size: a whole number above 0 and one of b, k, m, g. Write 2g, for example."),
    ("timeout", step("    limits: {timeout: -5}\n"), "jobs.train.limits.timeout", "-5 is below the minimum of 1: the number of seconds."),
    ("workers", step("    distribution: {type: TensorFlow, worker_count: 4}\n    resources: {instance_count: 2}\n"), "jobs.train.distribution.worker_count", "worker_count is 4, and resources.instance_count is 2; Azure ML starts one worker a node. Set both to 4."),
    ("resources key", step("    resources: {instances: 2}\n"), "jobs.train.resources.instances", "'instances' is not a key of resources. Did you mean 'instance_count'?"),
    # Steps
    ("automl step", step("  more: {type: automl}\n"), "jobs.more.type", "cannot run here: step 'more' is of type 'automl', which allranks neither runs nor checks."),
    ("preview's component", step("  more: {type: component}\n"), "jobs.more.type", "'component' is a type of the preview of Azure ML v2. Write type: command."),
    ("step type", step("  more: {type: comand}\n"), "jobs.more.type", "'comand' is no type of a step. Did you mean 'command'?"),
    ("step type of elsewhere", step("  more: {type: sparc}\n"), "jobs.more.type", "'sparc' is no type of a step. Did you mean 'spark'?"),
    ("empty step", step("  more:\n"), "jobs.more", "a command step has no 'component' and no 'command'. Write component: ./component.yaml."),
    ("step name", step("  More: {command: x, environment: 'azureml:e:1'}\n"), "jobs.More", "'More' is no step's name: lower-case letters, digits and underscores, no digit first."),
    ("component file", "jobs:\n  t: {component: ./tran.yaml}\n", "jobs.t.component", "there is no file './tran.yaml'. Did you mean 'train.yaml'?"),
    ("component name", "jobs:\n  t: {component: train_well}\n", "jobs.t.component", "'train_well' is neither a file nor a component of the library. See: allranks list."),
    ("registered component", "jobs:\n  t: {component: 'azureml:other:1'}\n", "jobs.t.component", "cannot run here: 'azureml:other:1' is registered in Azure, and not known here. Give its YAML with --map azureml:other:1=PATH."),
    ("registered, no such input", registered("inputs: {a: '${{parent.inputs.b}}'}"), "jobs.t.inputs.a", "${{parent.inputs.b}}: the pipeline has no input 'b'."),
    ("registered, no such step", registered("inputs: {a: 'of ${{parent.jobs.u.outputs.b}}'}"), "jobs.t.inputs.a", "${{parent.jobs.u.outputs.b}}: there is no step 'u'. The steps are: t."),
    ("registered, open expression", registered("inputs: {a: '${{parent.inputs.b'}"), "jobs.t.inputs.a", "opens an expression that is not closed by '}}'."),
    ("registered, no such output", registered("outputs: {a: '${{parent.outputs.b}}'}"), "jobs.t.outputs.a", "${{parent.outputs.b}}: the pipeline has no output 'b'."),
    ("registered, compute", registered("compute: '${{parent.inputs.b}}'"), "jobs.t.compute", "${{parent.inputs.b}}: the pipeline has no input 'b'."),
    ("registered, distribution", registered("distribution: {type: pytorhc}"), "jobs.t.distribution.type", "'pytorhc' is no distribution. Did you mean 'pytorch'?"),
    ("parallel, no such step", registered("type: parallel, inputs: {a: '${{parent.jobs.u.outputs.b}}'}"), "jobs.t.inputs.a", "${{parent.jobs.u.outputs.b}}: there is no step 'u'."),
    ("type of the step", "jobs:\n  t: {type: pipeline, component: ./train.yaml}\n", "jobs.t.component", "is a command component on a step of type 'pipeline'. Write type: command."),
    ("itself", "jobs:\n  t: {type: pipeline, component: ./document.yaml}\n", "jobs.t.component", "a pipeline contains itself: document.yaml -> document.yaml."),
    # Wiring
    ("not an integer", wiring(DATA_BOUND + "\n      epochs: abc"), "jobs.train.inputs.epochs", "'abc' is not an integer (0 to 10000)."),
    ("too many", wiring(DATA_BOUND + "\n      epochs: 20000"), "jobs.train.inputs.epochs", "20000 is above the maximum of 10000 (0 to 10000)."),
    ("fraction", wiring(DATA_BOUND + "\n      epochs: 2.5"), "jobs.train.inputs.epochs", "2.5 is not an integer (0 to 10000)."),
    ("not a number", wiring(DATA_BOUND + "\n      rate: fast"), "jobs.train.inputs.rate", "'fast' is not a number (at least 0)."),
    ("no choice", wiring(DATA_BOUND + "\n      schedule: linear"), "jobs.train.inputs.schedule", "'linear' is not one of 'cosine', 'constant'."),
    ("case of a choice", wiring(DATA_BOUND + "\n      schedule: Cosine"), "jobs.train.inputs.schedule", "'Cosine' is not one of 'cosine', 'constant'. Upper and lower case count."),
    ("unquoted true", wiring(DATA_BOUND + "\n      augment: true"), "jobs.train.inputs.augment", "'True' is not one of 'true', 'false'. Azure ML passes an unquoted true as 'True'; write 'true' in quotes."),
    ("unknown input", wiring(DATA_BOUND + "\n      epoch: 3"), "jobs.train.inputs.epoch", "there is no input 'epoch' in 'train'; azure-ai-ml would send the step without it. Did you mean 'epochs'?"),
    ("missing input", ONE, "jobs.train", "the required input 'data' (uri_folder) is missing."),
    ("misspelt input", wiring("dta: ${{parent.jobs.prepare.outputs.data}}"), "jobs.train.inputs", "the required input 'data' (uri_folder) is missing. Did you mean 'dta'?"),
    ("null", wiring("data:"), "jobs.train.inputs.data", "has no value; Azure ML refuses this. Leave the key out."),
    ("list", wiring("data: [a, b]"), "jobs.train.inputs.data", "is a list; an input is a text, number, boolean or path."),
    ("group", wiring("data: {a: 1}"), "jobs.train.inputs.data", "is a mapping without 'path'. Write a member of an input group as data.a: VALUE."),
    ("dataset", wiring("data: {dataset: x}"), "jobs.train.inputs.data", "is a mapping without 'path'. Write {type: uri_folder, path: ./data}."),
    ("number for data", wiring("data: 5"), "jobs.train.inputs.data", "5 is not a path, and the input takes a uri_folder."),
    ("data for number", wiring(DATA_BOUND + "\n      epochs: {path: ./rows}"), "jobs.train.inputs.epochs", "/rows' is a path, and the input takes an integer."),
    ("no such data", wiring("data: {path: ./nowhere}"), "jobs.train.inputs.data", "there is no file or folder '"),
    ("file for folder", wiring("data: {path: ./train.yaml}"), "jobs.train.inputs.data", "/train.yaml' is a file, and the input takes a uri_folder."),
    ("no such step", wiring("data: ${{parent.jobs.prepar.outputs.data}}"), "jobs.train.inputs.data", "${{parent.jobs.prepar.outputs.data}}: there is no step 'prepar'. Did you mean 'prepare'?"),
    ("no such output", wiring("data: ${{parent.jobs.prepare.outputs.dat}}"), "jobs.train.inputs.data", "${{parent.jobs.prepare.outputs.dat}}: step 'prepare' has no output 'dat'. Did you mean 'data'?"),
    ("data into a number", wiring(DATA_BOUND + "\n      epochs: ${{parent.jobs.prepare.outputs.table}}"), "jobs.train.inputs.epochs", "takes an integer, and ${{parent.jobs.prepare.outputs.table}} is a uri_file."),
    ("no parent", wiring("data: ${{jobs.prepare.outputs.data}}"), "jobs.train.inputs.data", "${{jobs.prepare.outputs.data}} misses 'parent'. Write ${{parent.jobs.prepare.outputs.data}}."),
    ("inputs without parent", wiring(DATA_BOUND + "\n      epochs: ${{inputs.n}}", "inputs: {n: 3}"), "jobs.train.inputs.epochs", "${{inputs.n}} is for a command; a step binds the pipeline's inputs. Write ${{parent.inputs.n}}."),
    ("no such parent", wiring(DATA_BOUND + "\n      epochs: ${{parent.inputs.epoch}}", "inputs: {epochs: 3}"), "jobs.train.inputs.epochs", "${{parent.inputs.epoch}}: the pipeline has no input 'epoch'. Did you mean 'epochs'?"),
    ("nonsense", wiring("data: ${{whatever}}"), "jobs.train.inputs.data", "${{whatever}} means nothing in a step's inputs."),
    ("value from the parent", wiring(DATA_BOUND + "\n      epochs: ${{parent.inputs.n}}", "inputs: {n: 20000}"), "jobs.train.inputs.epochs", "20000 is above the maximum of 10000 (0 to 10000). It is the pipeline's input 'n'."),
    ("type from the parent", wiring(DATA_BOUND + "\n      epochs: ${{parent.inputs.n}}", "inputs: {n: {type: boolean}}"), "jobs.train.inputs.epochs", "takes an integer, and the pipeline's input 'n' is a boolean."),
    ("optional from the parent", wiring("data: ${{parent.inputs.n}}", "inputs: {n: {type: uri_folder, optional: true}}"), "jobs.train.inputs.data", "must have a value, and the pipeline's input 'n' is optional. Make both optional, or neither."),
    ("nodes from the parent", step("    resources: {instance_count: '${{parent.inputs.n}}'}\ninputs: {n: 0}\n"), "jobs.train.resources.instance_count", "0 is below the minimum of 1 (at least 1). It is the pipeline's input 'n'."),
    ("nodes from nowhere", step("    resources: {instance_count: '${{parent.inputs.n}}'}\n"), "jobs.train.resources.instance_count", "${{parent.inputs.n}}: the pipeline has no input 'n'. There are no inputs."),
    ("variable from nowhere", step("    environment_variables: {N: '${{parent.inputs.n}}'}\n"), "jobs.train.environment_variables.N", "${{parent.inputs.n}}: the pipeline has no input 'n'."),
    ("output of a step", step("    outputs: {modl: {mode: upload}}\n"), "jobs.train.outputs.modl", "there is no output 'modl' in 'train'; azure-ai-ml would send the step without it. Did you mean 'model'?"),
    ("output of the pipeline", step("    outputs: {model: '${{parent.outputs.best}}'}\n"), "jobs.train.outputs.model", "${{parent.outputs.best}}: the pipeline has no output 'best'."),
    ("path as output", step("    outputs: {model: ./here}\n"), "jobs.train.outputs.model", "'./here' is no place for an output."),
    ("type of an output", step("    outputs: {model: {type: uri_file}}\n"), "jobs.train.outputs.model", "is an mlflow_model of the component, and cannot become a uri_file."),
    ("output twice", wiring(DATA_BOUND + "\n    outputs: {model: '${{parent.outputs.best}}'}\n  again:\n    component: ./train.yaml\n    inputs: {data: {path: ./rows}}\n    outputs: {model: '${{parent.outputs.best}}'}", "outputs: {best: {mode: upload}}"), "jobs.again.outputs.model", "the output 'best' is written by train.model and by again.model."),
    ("quote in a value", "jobs:\n  a:\n    component: {type: command, command: \"echo '${{inputs.t}}'\", environment: 'azureml:e:1', inputs: {t: {type: string}}}\n    inputs: {t: it's}\n", "jobs.a.inputs.t", "'it's' has a single quote in it, which would end the quoting in the command."),
    ("cycle", "jobs:\n  a: {component: ./prepare.yaml, inputs: {raw: '${{parent.jobs.b.outputs.data}}'}}\n  b: {component: ./prepare.yaml, inputs: {raw: '${{parent.jobs.a.outputs.data}}'}}\n", "jobs.a", "the steps wait for each other: a -> b -> a. Cut one of the bindings."),
    ("itself as input", "jobs:\n  a: {component: ./prepare.yaml, inputs: {raw: '${{parent.jobs.a.outputs.data}}'}}\n", "jobs.a", "the steps wait for each other: a -> a."),
    # Sweeps
    ("no trial", "jobs:\n  s: {type: sweep}\n", "jobs.s", "a sweep step has no 'trial'."),
    ("sweep's space", "jobs:\n  s: {type: sweep, trial: ./train.yaml, inputs: {data: {path: ./rows}}, sampling_algorithm: random, objective: {goal: maximise, primary_metric: m}, limits: {max_total_trials: 2}, search_space: {rat: {type: uniform, min_value: 0, max_value: 1}}}\n", "jobs.s.search_space.rat", "the trial has no input 'rat'. Did you mean 'rate'?"),
    ("goal", "jobs:\n  s: {type: sweep, trial: ./train.yaml, objective: {goal: maximise, primary_metric: m}}\n", "jobs.s.objective.goal", "'maximise' is neither minimize nor maximize. Did you mean 'maximize'?"),
    ("trials", "jobs:\n  s: {type: sweep, trial: ./train.yaml, limits: {max_trials: 3}}\n", "jobs.s.limits.max_trials", "'max_trials' is not a key of a sweep's limits. Did you mean 'max_total_trials'?"),
    ("choice", "jobs:\n  s: {type: sweep, trial: ./train.yaml, search_space: {epochs: {type: choice, values: [1, many]}}}\n", "jobs.s.search_space.epochs", "'many' is not an integer (0 to 10000)."),
    ("binding as a choice", "jobs:\n  s: {type: sweep, trial: ./train.yaml, search_space: {schedule: {type: choice, values: ['${{parent.inputs.n}}']}}}\n", "jobs.s.search_space.schedule", "'${{parent.inputs.n}}' is a binding; Azure ML takes none here. Write the value."),
    ("kind of search", "jobs:\n  s: {type: sweep, trial: ./train.yaml, search_space: {epochs: {type: unifrom}}}\n", "jobs.s.search_space.epochs.type", "'unifrom' is no type of a search space. Did you mean 'uniform'?"),
    # What the SDK's schemas say
    ("version of a pipeline job", "$schema: x/pipelineJob.schema.json\n" + ONE + DATA + "version: 3\n", "version", "'version' is not a key of a pipeline job."),
    ("description of a job's input", "$schema: x/pipelineJob.schema.json\n" + ONE + DATA + "inputs: {a: {type: uri_folder, path: ./rows, description: b}}\n", "inputs.a.description", "'description' is for a component's input, and Azure ML refuses it on a job's."),
    ("declared literal of a job", "$schema: x/pipelineJob.schema.json\n" + ONE + DATA + "inputs: {a: {type: integer, default: 3}}\n", "inputs.a", "declares a literal, and Azure ML takes its value alone from a job. Write a: 3."),
    ("mode of a job's input", "$schema: x/pipelineJob.schema.json\n" + ONE + DATA + "inputs: {a: {type: uri_folder, path: ./rows, mode: rw_mount}}\n", "inputs.a.mode", "rw_mount is no mode that Azure ML takes here. The modes are: direct, download, ro_mount."),
    ("mode of a step's input", wiring("data: {path: ./rows, type: uri_folder, mode: rw_mount}"), "jobs.train.inputs.data.mode", "rw_mount is no mode that Azure ML takes here."),
    ("mode of a step's output", step("    outputs: {model: {mode: ro_mount}}\n"), "jobs.train.outputs.model.mode", "ro_mount is no mode that Azure ML takes here. The modes are: direct, mount, rw_mount, upload."),
    ("default_compute", step("settings: {default_compute: cpu}\n"), "settings.default_compute", "'cpu' does not begin with azureml:, and Azure ML refuses this. Write azureml:cpu."),
    ("version without a name", step("    outputs: {model: {version: 3}}\n"), "jobs.train.outputs.model.version", "is there without a name."),
    ("path of a component's output", HEAD + "outputs: {a: {type: uri_folder, path: x}}\n" + TAIL, "outputs.a.path", "'path' is not a key of an output."),
    ("identity", step("    identity: {type: manged}\n"), "jobs.train.identity.type", "'manged' is none of the types of an identity. Did you mean 'managed'?"),
    ("service", step("    services: {s: {type: shh}}\n"), "jobs.train.services.s.type", "'shh' is none of the types of a service."),
    ("no distribution", component() + "distribution: {}\n", "distribution", "states no type. The distributions are: pytorch, mpi, tensorflow."),
    ("name no text", component().replace("mine", "5"), "name", "is a number, and should be a text. Write '5' in quotes."),
    ("tag no text", component() + "tags: {a: 1}\n", "tags.a", "is a number, and should be a text. Write '1' in quotes."),
    ("key without a value", component() + "description:\n", "description", "has no value; Azure ML refuses this. Leave the key out."),
    ("os_type", HEAD + "command: x\nenvironment: {image: x, os_type: linus}\n", "environment.os_type", "'linus' is none of the values of os_type. Did you mean 'linux'?"),
    ("conda_file", HEAD + "command: x\nenvironment: {image: x, conda_file: ./nowhere.yaml}\n", "environment.conda_file", "there is no file '"),
    ("build context", HEAD + "command: x\nenvironment: {build: {path: ./nowhere}}\n", "environment.build.path", "there is no file or folder '"),
    ("name of a pipeline component", "$schema: x/pipelineComponent.schema.json\nname: My-Own\n" + ONE + DATA, "name", "'My-Own' is no component's name"),
    ("value of a pipeline component", "$schema: x/pipelineComponent.schema.json\nname: own\ninputs: {a: 3}\n" + ONE + DATA, "inputs.a", "is a number; an input of a component states its type."),
    ("type of jobs", ONE.replace("pipeline", "pipelin", 1) + DATA, "type", "'pipelin' is not the type of a document with 'jobs'. Write type: pipeline."),
]
# fmt: on


@pytest.mark.parametrize(("text", "where", "message"), [row[1:] for row in MISTAKES], ids=[row[0] for row in MISTAKES])
def test_the_message_names_the_value_the_rule_and_the_next_step(problems_of, text, where, message):
    errors = [problem for problem in problems_of(text) if problem.severity != "warning"]
    found = [(problem.where, f"{problem.message} {problem.hint}".strip()) for problem in errors]
    assert any(place == where and message in full for place, full in found), found
    assert all(one.file and (one.line or not text) and "\n" not in one.message for one in errors)


# fmt: off
WARNINGS = [
    ("old key of processes", HEAD + TAIL + "distribution: {type: mpi, process_count_per_node: 2}\n", "distribution.process_count_per_node", "'process_count_per_node' is not a key of an mpi distribution. Did you mean 'process_count_per_instance'?"),
    ("key twice", HEAD + TAIL + "name: other\n", "name", "'name' is there twice, first in line 2; only one can count."),
    ("unknown key", HEAD + TAIL + "is_determinstic: true\n", "is_determinstic", "'is_determinstic' is not a key of a component. Did you mean 'is_deterministic'?"),
    ("unknown step key", step("    inptus: {}\n"), "jobs.train.inptus", "'inptus' is not a key of a step. Did you mean 'inputs'?"),
    ("unknown setting", step("settings: {force_rerunn: true}\n"), "settings.force_rerunn", "'force_rerunn' is not a key of settings. Did you mean 'force_rerun'?"),
    ("like no key", step("    special_option: {on: 1}\n"), "jobs.train.special_option", "'special_option' is not a key of a step. The keys of a step are: "),
    ("shm_size at the top", component() + "shm_size: 2g\n", "shm_size", "'shm_size' is not a key of a component."),
    ("default no choice", component("{type: string, default: c, enum: [a, b]}"), "inputs.a.default", "the default 'c' is not one of 'a', 'b'."),
    ("version", component().replace("'1'", "1.10"), "version", "YAML reads the version 1.10 as a number, and Azure ML gets '1.1'. Write version: \"1.10\"."),
    ("yes", component("{type: string, default: yes}", TAIL + "  ${{inputs.a}}"), "inputs.a.default", "YAML does not read yes as a text, and Azure ML gets something else. Write 'yes' in quotes."),
    ("unused", component("{type: string}"), "inputs.a", "the command does not use this input. Add --a '${{inputs.a}}'."),
    ("optional default", component("{type: integer, optional: true, default: 3}", TAIL + "  $[[--a ${{inputs.a}}]]"), "inputs", "optional and with a default: a. The default always applies, so 'optional' has no effect."),
    ("dropped by a component", component() + "environment_variables: {A: b}\n", "environment_variables", "'environment_variables' is ignored here by Azure ML: write it on the pipeline's step."),
    ("dropped by a step", step("    environment: azureml:e:2\n"), "jobs.train.environment", "'environment' is ignored here by Azure ML: the component's own counts."),
    ("processes of TensorFlow", component() + "distribution: {type: tensorflow, process_count_per_instance: 4}\n", "distribution.process_count_per_instance", "'process_count_per_instance' is ignored here by Azure ML: TensorFlow has worker_count"),
    ("hyphen", "type: pipeline\njobs:\n  my-step: {command: x, environment: 'azureml:e:1'}\n", "jobs.my-step", "'my-step' runs here, and current versions of Azure ML refuse it as a step's name"),
    ("unfed output", step("outputs: {best: {mode: upload}}\n"), "outputs.best", "no step writes this output."),
    ("file for a folder", wiring("data: {type: uri_file, path: ./train.yaml}"), "jobs.train.inputs.data", "is a uri_file, and the input takes a uri_folder; the component is given what is there."),
    ("file for a folder, from the parent", wiring("data: ${{parent.inputs.rows}}", "inputs: {rows: {type: uri_file, path: ./train.yaml}}"), "jobs.train.inputs.data", "takes a uri_folder, and the pipeline's input 'rows' is a uri_file; the component is given what is there."),
    ("types of ports", wiring("data: ${{parent.jobs.prepare.outputs.table}}"), "jobs.train.inputs.data", "takes a uri_folder, and ${{parent.jobs.prepare.outputs.table}} is a uri_file; the component is given what is there."),
    ("optional for a default", "type: pipeline\njobs: {p: {component: ./prepare.yaml, inputs: {rows: '${{parent.inputs.n}}'}}}\ninputs: {n: {type: integer, optional: true, default: 5}}\n", "jobs.p.inputs.rows", "is not optional, and the pipeline's input 'n' is; Azure ML refuses this. Make both optional, or neither."),
    ("braces without a dollar", component("{type: string}", TAIL + "  ${{inputs.a}} {{ inputs.a }}"), "command", "'{{ inputs.a }}' is no reference; the shell gets it as it stands. Write ${{inputs.a}}."),
    ("one brace", component("{type: string}", TAIL + "  ${{inputs.a}} ${inputs.a}"), "command", "'${inputs.a}' is no reference; the shell gets it as it stands. Write ${{inputs.a}}."),
    ("file called a folder", "type: pipeline\njobs:\n  prepare: {component: ./prepare.yaml, outputs: {table: {type: uri_folder}}}\n", "jobs.prepare.outputs.table", "is a uri_file of the component, and cannot become a uri_folder."),
    ("empty text", "type: pipeline\njobs: {t: {component: ./text.yaml, inputs: {a: ''}}}\n", "jobs.t.inputs.a", "is an empty text, which Azure ML refuses for an input. Write a text, or leave the input out."),
    ("boolean variable", step("    environment_variables: {DEBUG: true}\n"), "jobs.train.environment_variables.DEBUG", "YAML reads this as a boolean, and the variable becomes 'True'. Put it in quotes."),
]
# fmt: on


@pytest.mark.parametrize(("text", "where", "message"), [row[1:] for row in WARNINGS], ids=[row[0] for row in WARNINGS])
def test_what_azure_drops_or_changes_is_a_warning(folder, problems_of, text, where, message):
    (folder / "text.yaml").write_text(component("{type: string}", TAIL + "  '${{inputs.a}}'"))
    problems = problems_of(text)
    found = [(one.where, f"{one.message} {one.hint}".strip(), one.severity) for one in problems]
    assert any(place == where and message in full and kind == "warning" for place, full, kind in found), found
    assert {kind for _, _, kind in found} == {"warning"}


def test_all_mistakes_of_a_pipeline_and_its_components_come_at_once(folder, problems_of):
    (folder / "train.yaml").write_text((folder / "train.yaml").read_text().replace("max: 10000", "mx: 10000"))
    text = wiring("data: ${{parent.jobs.nobody.outputs.data}}\n      epochs: abc") + "settings: {rerun: true}\n"
    problems = problems_of(text)  # the key of the settings is a warning
    assert [(one.file.name, one.line, one.where) for one in problems] == [
        ("train.yaml", 10, "inputs.epochs.mx"),
        ("document.yaml", 10, "jobs.train.inputs.data"),
        ("document.yaml", 11, "jobs.train.inputs.epochs"),
    ]


def test_one_mistake_is_one_problem(problems_of):
    text = ONE + "    inputs: {data: {path: ./rows}, epochs: abc}\n"
    assert len(problems_of(text)) == 1
    assert len(problems_of(ONE.replace("component: ./train.yaml", "componnt: ./train.yaml") + DATA)) == 1
    (bound,) = problems_of(wiring(DATA_BOUND + "\n      epochs: ${{parent.inputs.n}}", "inputs: {n: 2.5}"))
    assert bound.message == "2.5 is not an integer (0 to 10000). It is the pipeline's input 'n'."
    defaulted = component("{type: integer, optional: true, default: 3}", TAIL + "  --a ${{inputs.a}}")
    assert [one.where for one in problems_of(defaulted)] == ["inputs"]


def test_values_from_the_command_line_are_checked_by_the_same_rules(problems_of):
    text = wiring(DATA_BOUND + "\n      epochs: ${{parent.inputs.epochs}}", "inputs: {epochs: 3, name: {type: string}}")
    values = {"epochs": "abc", "epoch": 1}
    assert [str(problem) for problem in problems_of(text, values) if problem.where != "inputs.name"] == [
        "inputs.epochs: 'abc' is not an integer.",
        "inputs.epoch: the pipeline has no input 'epoch'. Did you mean 'epochs'?",
    ]
    (missing,) = problems_of(text, {"epochs": "5"})
    assert missing.message == "needs a string, and has none."
    (high,) = problems_of(text, {"epochs": "20000", "name": "x"})
    assert high.where == "jobs.train.inputs.epochs"


def test_a_file_that_cannot_be_read_is_a_problem(folder, tmp_path):
    from allranks.errors import SpecError
    from allranks.spec import read_pipeline, read_spec

    with pytest.raises(SpecError, match="No such file"):
        read_spec(tmp_path / "nothing.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"name: caf\xe9\n")
    with pytest.raises(SpecError, match="is not UTF-8"):
        read_spec(tmp_path / "latin.yaml")
    with pytest.raises(SpecError, match="is a command component; a pipeline is wanted"):
        read_pipeline(folder / "train.yaml")


def test_resources_of_a_step_that_lose_the_components_shared_memory(tmp_path):
    ranks = "distribution: {type: pytorch}\nresources: {instance_count: 1, shm_size: 8g}\n"
    (tmp_path / "train.yaml").write_text(
        f"name: train\nversion: '1'\ntype: command\ncommand: x\nenvironment: azureml:e:1\n{ranks}"
    )
    text = "type: pipeline\njobs: {{train: {{component: ./train.yaml, resources: {{instance_count: 2{more}}}}}}}\n"
    for more, warnings in (("", ["jobs.train.resources"]), (", shm_size: 4g", [])):
        (tmp_path / "pipeline.yaml").write_text(text.format(more=more))
        found = check_document(read_spec(tmp_path / "pipeline.yaml"))
        assert [problem.where for problem in found] == warnings
        assert all("shm_size 8g is lost on Azure ML" in problem.message for problem in found)
