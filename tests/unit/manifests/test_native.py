"""The native manifest: what it means, and what is said about a bad one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from jobyard.errors import UserError
from jobyard.manifests.context import SubmitContext
from jobyard.manifests.documents import parse_documents
from jobyard.manifests.native import schema, spec_from_native
from jobyard.manifests.overrides import Overrides
from jobyard.model.job import Command, Dependency
from jobyard.model.policy import FailurePolicy, RunPolicy
from jobyard.model.resources import Resources

if TYPE_CHECKING:
    from tests.unit.manifests.conftest import Load


EVERYTHING = """
name: train
command: [python, train.py, 1, true]
resources: {cpus: 500m, memory: 4G, gpus: 2, gpu_memory: 10GiB}
env: {SEED: 42, DEBUG: true, RATE: 1e-3, TIME: 02:30, EMPTY: ""}
array: 0-9%3
priority: -5
timeout: 02:30:00
deadline: 1d
retries: 3
retry_delay: 1m30s
max_fails: 2
on_failure: stop
after: [12, "afterany:prep"]
on: gpu-box
grace: 0
image: python:3.12
"""


def test_every_field_arrives(load: Load) -> None:
    spec = load(EVERYTHING)
    (group,) = spec.groups
    assert group.command == Command(argv=("python", "train.py", "1", "true"))
    assert group.resources == Resources(500, 4096, 2, 10240, memory_limit=True)
    assert spec.env == {"SEED": "42", "DEBUG": "true", "RATE": "1e-3", "TIME": "02:30", "EMPTY": ""}
    assert (group.completions, spec.name, spec.on) == (10, "train", "gpu-box")
    assert spec.policy == RunPolicy(-5, 3, 9000, 86400, 3, 90, 2, FailurePolicy.STOP, 0)
    assert spec.after == (Dependency("12"), Dependency("prep", needs_success=False))
    assert (spec.submitter.source, spec.submitter.user, spec.container.image) == ("native", "ada", "python:3.12")
    assert any("'python:3.12' is not used" in note for note in spec.submitter.notes)


@pytest.mark.parametrize("nothing", ["", "null", "~"])
def test_a_variable_without_a_value_has_that_of_the_submitting_shell(nothing: str, load: Load) -> None:
    spec = load(f'command: x\nenv:\n  TOKEN: {nothing}\n  EMPTY: ""\ngroups:\n  a:\n    env:\n      HOME: {nothing}\n')
    assert (spec.env, spec.groups[0].env) == ({"TOKEN": "s3cret", "EMPTY": ""}, {"HOME": "/home/ada"})


def test_with_container_the_image_is_used_and_nothing_says_otherwise(load: Load) -> None:
    spec = load("command: true\nimage: demo:1\ncontainer: true\n")
    assert (spec.container.on_machines, spec.submitter.notes) == (True, ())
    assert load("command: true\nimage: demo:1\n", overrides=Overrides(container=True)).submitter.notes == ()


def test_the_smallest_manifest_is_a_command(load: Load) -> None:
    spec = load("command: true\n", "hello.yml")
    assert spec.groups[0].command == Command(shell="true")
    assert (spec.name, spec.size, spec.workdir) == ("hello", 1, load("command: a", "x.json").workdir)


def test_groups_inherit_from_the_top_what_they_do_not_say(load: Load) -> None:
    spec = load(
        """
command: echo top
resources: {cpus: 2, memory: 1G}
gang: yes
groups:
  worker: {count: 3, completions: 2, parallelism: 2}
  boss: {command: echo boss, resources: {memory: 2G}, env: {A: b}}
  none: {count: 0}
  plain:
"""
    )
    boss, plain, worker = spec.groups
    assert (boss.command.shell, boss.resources, boss.env) == (
        "echo boss",
        Resources(2000, 2048, memory_limit=True),
        {"A": "b"},
    )
    assert (worker.command.shell, worker.resources.memory_mib, worker.size) == ("echo top", 1024, 6)
    assert (worker.parallelism, plain.count, spec.gang, spec.size) == (2, 1, True, 8)


def test_json_is_read_too_with_tabs_and_escapes(load: Load) -> None:
    text = '{\n\t"command": ["echo", "\\ud83d\\ude00", "a\\/b"],\n\t"priority": 1e0,\n\t"grace": 1.5\n}'
    with pytest.raises(UserError, match="priority"):
        load(text, "x.json")
    spec = load(text.replace("1e0", "1"), "x.json")
    assert spec.groups[0].command.argv == ("echo", "😀", "a/b")


def test_anchors_and_merges_are_understood(load: Load) -> None:
    spec = load("command: x\ngroups:\n  a: &a {count: 2, resources: {cpus: 3}}\n  b: {<<: *a, count: 1}\n")
    assert [(group.count, group.resources.cpu_millis) for group in spec.groups] == [(2, 3000), (1, 3000)]


def test_gpu_memory_alone_means_one_gpu(load: Load) -> None:
    assert load("command: x\nresources: {gpu_memory: 4G}").groups[0].resources == Resources(1000, 0, 1, 4096)


def test_a_share_of_compute_alone_means_one_gpu(load: Load) -> None:
    (group,) = load("command: x\nresources: {gpu_utilization: 0.5}").groups
    assert group.resources == Resources(gpus=1, gpu_percent=50)


def test_a_group_may_ask_for_a_node_of_its_own(load: Load) -> None:
    spec = load("command: x\nresources: {whole_node: true}\ngroups: {a: , b: {resources: {whole_node: false}}}")
    assert [group.resources.whole_node for group in spec.groups] == [True, False]


def test_what_goes_along_and_what_comes_home(load: Load, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    spec = load("command: x\ncopy_forward: [./src, .]\ncopy_backwards: out/\n")
    assert (spec.staging.copy_forward, spec.staging.copy_back, spec.staging.no_copy) == (("src", "."), ("out",), False)
    assert load("command: x", overrides=Overrides(no_copy=True)).staging.no_copy


def test_flags_win_over_the_manifest(load: Load) -> None:
    spec = load(EVERYTHING, overrides=Overrides(array="5,7", cpus="1", name="other", retries=0, env=("SEED=1",)))
    assert (spec.size, spec.policy.limit, spec.name, spec.policy.retries, spec.env["SEED"]) == (
        2,
        None,
        "other",
        0,
        "1",
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("name: x\ncomand: ls", "job.yaml: line 2: unknown key 'comand' in top level; did you mean 'command'?"),
        ("command: x\nzzz: 1", "line 2: unknown key 'zzz' in top level; known: "),
        ("command: x\nresources:\n  cpu: 1", "line 3: unknown key 'cpu' in resources; did you mean 'cpus'?"),
        ("command: x\ngroups:\n  a:\n    Count: 1", "line 4: unknown key 'Count' in groups.a; did you mean 'count'?"),
        ("command: x\non-failure: stop", "unknown key 'on-failure' in top level; did you mean 'on_failure'?"),
        ("command: [ls\nname: x", "job.yaml: line 2, column 5: not valid YAML: "),
        ("command: x\n\tname: y", "line 2, column 1: not valid YAML"),
        ("command: x\x07", "not valid YAML"),
        ("command: x\nname: a\nname: b", "line 3: key 'name' stands twice (first on line 2)"),
        ("", "job.yaml: it is empty"),
        ("# nothing\n", "job.yaml: it is empty"),
        ("command: a\n---\ncommand: b", "line 3: a second document"),
        ("- a\n- b", "top level: must be a mapping"),
        ("just text", "top level: must be a mapping"),
        ("name: x", "command: is missing; write what to run"),
        ("command:", "command: is missing"),
        ("command: ''", "command: is empty"),
        ("command: []", "command: is an empty list"),
        ("command: ['']", "the program's name is empty"),
        ("command: {a: b}", "command: must be a bash command, or a list of a program and its arguments, not a mapping"),
        ("command: [[a]]", "command[0]: must be text"),
        ('command: "a\\0b"', "NUL"),
        ("command: x\nretries: -1", "job.yaml: line 2: retries: -1 is out of range; write a whole number from 0"),
        ("command: x\nretries: two", "retries: must be a whole number from 0 to 1000000, not the text 'two'"),
        ("command: x\nretries: '2'", "not the text '2'"),
        ("command: x\nretries: 1.5", "retries: must be a whole number from 0 to 1000000, not 1.5"),
        ("command: x\nretries: true", "not true"),
        ("command: x\nretries: [1]", "not a list"),
        ("command: x\nretries: 99999999999999999999", "retries"),
        ("command: x\ngang: 1", "gang: must be true or false, not 1"),
        ("command: x\non_failure: stopp", "on_failure: unknown value 'stopp'; did you mean 'stop'?"),
        ("command: x\ntimeout: soon", "line 2: timeout: cannot read 'soon' as a duration"),
        ("command: x\ntimeout: 0", "timeout: '0' must be more than 0"),
        ("command: x\ngrace: -1", "grace: cannot read '-1'"),
        ("command: x\nresources: {memory: lots}", "resources.memory: cannot read 'lots' as a size"),
        ("command: x\nresources: {cpus: -1}", "resources.cpus: '-1' must be 0 or more"),
        ("command: x\nresources: {cpus: nan}", "resources.cpus"),
        ("command: x\nresources: {gpus: 0, gpu_memory: 4G}", "resources.gpu_memory: '4G' of no GPU"),
        (
            "command: x\nresources: 4",
            "resources: must be a mapping of cpus, memory, memory_limit, gpus, gpu_type, gpu_memory,"
            " gpu_utilization, whole_node, min_gpu_mem",
        ),
        (
            "command: x\nresources:\n  gpu_utilization: 50",
            "line 3: resources.gpu_utilization: '50' must be more than 0",
        ),
        ("command: x\nresources: {gpu_utilization: half}", "resources.gpu_utilization: cannot read 'half' as a share"),
        ("command: x\nresources: {gpus: 0, gpu_utilization: 50%}", "resources.gpu_utilization: '50%' of no GPU"),
        ("command: x\nresources: {whole_node: 1}", "resources.whole_node: must be true or false, not 1"),
        ("command: x\non: gpu1,,gpu2", "line 2: on: a name is missing in 'gpu1,,gpu2'"),
        ("command: x\ncopy_forward: nope", "line 2: copy_forward: 'nope' does not exist"),
        (
            "command: x\ncopy_backwards: [out, ../x]",
            "line 2: copy_backwards: '../x' is not inside the working directory",
        ),
        ("command: x\ncopy_backwards: ['']", "copy_backwards[0]: '' is not allowed; write a path"),
        ("command: x\nenv: [A=1]", "env: must be a mapping of names, not a list"),
        ("command: x\nenv: {1A: x}", "env: the name: '1A' is not allowed; write a variable's name"),
        ("command: x\nenv: {A: [1]}", "env.A: must be text"),
        ("command: x\nenv:\n  YARD_TASK: 1", "line 3: env: YARD_TASK is set by the yard itself"),
        ("command: x\nenv:\n  GONE:", "line 3: env.GONE: is not set in this shell; write GONE: VALUE"),
        (
            "command: x\ngroups:\n  a:\n    env: {GONE: null}",
            "line 4: groups.a.env.GONE: is not set in this shell",
        ),
        ("command: [x, null]", "command[1]: must be text, a number or true/false, not null"),
        ("command: x\nworkdir: nowhere", "line 2: workdir: 'nowhere' is not a directory"),
        ("command: x\narray: 9-0", "line 2: array: '9-0' runs backwards; write 0-9"),
        ("command: x\nstdin: nope", "line 2: stdin: 'nope' does not exist"),
        ("command: x\neach_line: nope", "line 2: each_line: 'nope' does not exist"),
        ("command: x\narray: 0-1\neach_line: nope", "array and each_line cannot be used together"),
        ("command: x\narray: 0-1\ngroups: {a: {}}", "line 2: array: the job has groups"),
        ("command: x\ngroups: {}", "groups: is empty"),
        ("groups: {a: {}}", "groups.a: has no command"),
        ("command: x\ngroups: {a: {count: 0}}", "groups: every count is 0"),
        ("command: x\ngroups: {a: {count: -1}}", "groups.a.count: -1 is out of range"),
        ("command: x\ngroups: {a: {completions: 0}}", "groups.a.completions: 0 is out of range"),
        ("command: x\ngroups: {Bad_Name: {}}", "groups: the name: 'Bad_Name' is not allowed; write lower-case"),
        ("command: x\ngang: true\nlimit: 2", "limit: a gang starts all its tasks together"),
        ("command: x\ngang: true\ngroups: {a: {completions: 4, parallelism: 2}}", "groups.a.parallelism: a gang"),
        ("command: x\nafter: afternotok:1", "after: unknown kind 'afternotok'"),
        ("command: x\nname: a/b", "name: 'a/b' is not a name"),
        ("command: &a [*a]", "anchor that contains itself"),
        ("? [a]\n: b", "a key must be a plain word"),
        ("command: x\n<<: 3", "'<<' needs a mapping"),
        ("command: " + "[" * 3000, "nested too deeply"),
        ('command: "\\ud800"', "half of a character"),
        ("command: *nope", "undefined alias"),
        ("command: x\nimage: ''", "line 2: image: '' is not an image; write one as in"),
        (
            "command: x\ncopy_backwards: [null]",
            "copy_backwards[0]: must be a path inside the working directory, not null",
        ),
    ],
)
def test_a_bad_manifest_gets_one_sentence(text: str, says: str, load: Load) -> None:
    with pytest.raises(UserError) as caught:
        load(text)
    assert says in str(caught.value)
    assert str(caught.value).startswith(("job.yaml: ", "command: it holds"))
    assert "\n" not in str(caught.value)


def test_anchors_that_multiply_do_not_take_for_ever(load: Load) -> None:
    levels = "\n".join(f"  l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 30))
    with pytest.raises(UserError):
        load(f"command: x\nenv:\n  l0: &l0 [x]\n{levels}\n")


def test_the_schema_is_one_and_describes_every_field() -> None:
    jsonschema.Draft202012Validator.check_schema(schema())
    assert json.loads(json.dumps(schema())) == schema()
    for name, field in schema()["properties"].items():
        assert field["description"], name
    assert schema()["properties"]["retries"]["default"] == 0
    assert schema()["additionalProperties"] is False


def test_the_schema_accepts_what_the_reader_accepts() -> None:
    as_1_2 = EVERYTHING.replace("02:30:00", '"02:30:00"').replace("\non:", "\n'on':")
    document = yaml.safe_load(as_1_2)
    jsonschema.validate(document, schema())


AMOUNTS: dict[str, st.SearchStrategy[Any]] = {
    "cpus": st.sampled_from([1, 0.5, "500m", "x", -1, True]),
    "memory": st.sampled_from(["4G", 512, "lots", []]),
    "gpus": st.sampled_from([0, 1, 2, -1, 1.5, "1", "1..2", "1..", "2..1", "x"]),
    "gpu_utilization": st.sampled_from([0.5, "50%", 1, 0, 50, "x"]),
    "whole_node": st.sampled_from([True, False, "yes", 1]),
}
GROUPS = st.fixed_dictionaries(
    {},
    optional={
        "count": st.sampled_from([1, 2, -1, "2", 0.5]),
        "completions": st.sampled_from([1, 3, 0]),
        "command": st.sampled_from(["ls", ["ls", 1], [], "", 5]),
        "resources": st.fixed_dictionaries({}, optional=AMOUNTS),
        "typo": st.just(1),
    },
)
MANIFESTS = st.fixed_dictionaries(
    {"command": st.sampled_from(["ls", ["ls", "-l"], [], " "])},
    optional={
        "priority": st.sampled_from([0, -4, "high", 1.5]),
        "retries": st.sampled_from([0, 3, -1]),
        "after": st.sampled_from([1, "afterany:2", [1, "prep"], [True], "1:2"]),
        "gang": st.sampled_from([True, False, "yes"]),
        "on_failure": st.sampled_from(["stop", "continue", "explode"]),
        "on": st.sampled_from(["a", "a, b", "", "a,", 5]),
        "copy_backwards": st.sampled_from(["out", ["a", "b"], "", [""], "/x", "../x"]),
        "env": st.dictionaries(st.sampled_from(["A", "B_1", "1C"]), st.sampled_from(["x", 1, True, [], None])),
        "resources": st.fixed_dictionaries({}, optional=AMOUNTS),
        "workers": st.sampled_from([1, 0, "1..4", "4..1", True]),
        "training": st.fixed_dictionaries(
            {},
            optional={
                "epochs": st.sampled_from([1, 0, "x"]),
                "estimate": st.sampled_from(["3h", 10, 0]),
                "idle_gpu": st.sampled_from(["warn", "stop", "x"]),
                "log_dir": st.sampled_from(["runs", " ", ""]),
            },
        ),
        "groups": st.dictionaries(st.sampled_from(["a", "b-2", "2b", "B"]), GROUPS, max_size=2),
    },
)


@settings(max_examples=200, deadline=None)
@given(MANIFESTS)
def test_what_the_reader_accepts_the_schema_accepts(manifest: dict[str, Any]) -> None:
    (document,) = parse_documents(json.dumps(manifest), "x.json")
    try:
        spec_from_native(document, Overrides(), SubmitContext("/"))
    except UserError:
        return
    generous = json.dumps(manifest).replace('"command": 5', '"command": "5"').replace('"on": 5', '"on": "5"')
    text_where_generous = json.loads(generous)
    jsonschema.validate(text_where_generous, schema())
