"""The AIchorManifest: what it means here, and what is said about a bad one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jobyard.errors import UserError
from jobyard.manifests.overrides import Overrides
from jobyard.model.kubernetes import Toleration

if TYPE_CHECKING:
    from tests.unit.manifests.conftest import Load


BASIC = """\
kind: AIchorManifest
apiVersion: 0.2.1
builder:
  image: demo
spec:
  operator: jobset
  image: demo
  command: python3 -u main.py
  types:
    worker:
      count: 5
      resources:
        cpus: 20
        ramRatio: 2
"""
EVERYTHING = """\
kind: AIchorManifest
apiVersion: 0.2.3
name: all of it
builder:
  image: demo
  dockerfile: ./Dockerfile
  context: sub
  registry: eu.example
  target: final
  buildArgs: {A: b, C: true}
  skipBuild: {enabled: true, experimentID: 5b0cd0c6-7a10-4f2c-a6c2-5e6cde4a3a0b, failIfNotFound: true}
clone: {depth: 3, includeDotGit: true, submodules: recursive}
spec:
  operator: jobset
  image: demo
  command: "python3 main.py | tee log"
  timeout: 6h
  activeDeadlineSeconds: 60
  env: {SEED: 1}
  tensorboard: {enabled: true}
  rayVersion: 2.9.0
  debug: {jupyter: true, vscode: {enabled: true, path: /aichor/code, provider: github}}
  storage:
    sharedVolume: {mountPoint: /mnt/shared, sizeGB: 16, storageClass: fast, accessMode: ReadWriteMany}
    attachExistingPVCs: [{name: data, mountPoint: /data}]
  types:
    worker:
      count: 2
      completions: 3
      parallelisms: 2
      resources:
        cpus: 4
        cpuLimitRatio: 1
        memory: 1.5
        shmSizeGB: 8
        accelerators: {gpu: {count: 2, type: gpu, product: NVIDIA-A100-SXM4-80GB}}
        rdma: {devices: [sriov_a, sriov_b]}
        extraSelectors: {zone: a}
        extraTolerations: [{key: k, operator: Equal, value: v, effect: NoSchedule}]
    worker-heavy:
      resources: {ramRatio: 1}
    nobody:
      count: 0
      resources: {ramRatio: 1}
"""


def test_a_basic_manifest_is_a_group_of_plain_processes(load: Load) -> None:
    spec = load(BASIC, "manifest.5-1-1.yaml")
    (group,) = spec.groups
    assert (spec.name, spec.size) == ("manifest.5-1-1", 5)
    assert (spec.submitter.source, spec.container.image) == ("aichor", "demo")
    assert (group.name, group.count, group.completions, group.parallelism) == ("worker", 5, 1, 1)
    assert group.command.shell == "python3 -u main.py"
    assert group.resources.cpu_millis == 20000
    assert group.resources.memory_mib == 38147  # 40 GB
    assert spec.submitter.notes[0].startswith("operator jobset runs here as plain processes")
    assert "'demo' is neither built nor used" in spec.submitter.notes[1]
    assert len(spec.submitter.notes) == 2


def test_fewer_cpus_need_less_memory_where_a_ratio_says_how_much(load: Load) -> None:
    resources = load(BASIC, overrides=Overrides(cpus="0.1")).groups[0].resources
    assert (resources.cpu_millis, resources.memory_mib) == (100, 191)  # 0.2 GB
    assert load(BASIC, overrides=Overrides(cpus="0.1", mem="1G")).groups[0].resources.memory_mib == 1024
    fixed = BASIC.replace("ramRatio: 2", "memory: 3")
    assert load(fixed, overrides=Overrides(cpus="0.1")).groups[0].resources.memory_mib == 2862


def test_every_field_is_known_and_what_has_no_effect_is_told(load: Load) -> None:
    spec = load(EVERYTHING)
    worker, heavy = spec.groups
    assert (spec.name, spec.policy.deadline_seconds, spec.policy.timeout_seconds) == ("all of it", 21600, None)
    assert spec.env == {"SEED": "1"}
    assert (worker.size, worker.parallelism, worker.resources.gpus, worker.resources.memory_mib) == (6, 2, 2, 1431)
    assert (heavy.name, heavy.count, heavy.resources.cpu_millis, heavy.resources.memory_mib) == (
        "worker-heavy",
        1,
        1000,
        954,
    )
    told = "\n".join(spec.submitter.notes)
    words = "clone tensorboard rayVersion debug storage cpuLimitRatio shmSizeGB product rdma Selectors Tolerations"
    for word in words.split():
        assert told.count(word) >= 1, word
    assert len(spec.submitter.notes) == 13


def test_what_only_pods_can_have_is_kept_for_kubernetes(load: Load) -> None:
    spec = load(EVERYTHING, overrides=Overrides(on="kubernetes"))
    worker, heavy = spec.groups
    assert (worker.cpu_limit_millis, worker.shm_mib) == (4000, 7630)  # 8 GB
    assert worker.node_selector == {"zone": "a", "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}
    assert worker.tolerations == (Toleration("k", "Equal", "v", "NoSchedule"),)
    assert (heavy.cpu_limit_millis, heavy.shm_mib, heavy.node_selector, heavy.tolerations) == (2000, 0, {}, ())
    assert spec.submitter.cluster_notes is not None
    assert spec.submitter.cluster_notes[0] == "image 'demo' is not built: the cluster must be able to pull it"
    assert [note.split()[0] for note in spec.submitter.cluster_notes[1:]] == [
        "spec.tensorboard",
        "spec.rayVersion",
        "spec.debug",
        "spec.storage",
        "spec.types.worker.resources.rdma",
    ]


def test_the_deadline_in_seconds_counts_without_a_timeout(load: Load) -> None:
    assert load(EVERYTHING.replace("  timeout: 6h\n", "")).policy.deadline_seconds == 60


def test_kind_and_version_may_be_left_out_and_the_builder_empty(load: Load) -> None:
    text = BASIC.replace("kind: AIchorManifest\napiVersion: 0.2.1\n", "").replace(
        "builder:\n  image: demo\n", "builder:\n"
    )
    assert load(text).submitter.source == "aichor"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("ramRatio: 2", "ramRatio: 2\n        memory: 4", "exactly one of ramRatio and memory must be set, both"),
        ("        ramRatio: 2\n", "", "line 12: spec.types.worker.resources: exactly one of ramRatio and memory"),
        (
            "count: 5",
            "parallelism: 5",
            "line 11: unknown key 'parallelism' in spec.types.worker; did you mean 'parallelisms'?",
        ),
        ("count: 5", "count: -1", "line 11: spec.types.worker.count: -1 is out of range"),
        ("count: 5", "count: 0", "spec.types: every count is 0"),
        ("count: 5", "count: five", "not the text 'five'"),
        ("count: 5", "completions: 0", "spec.types.worker.completions: 0"),
        ("    worker:", "    Worker:", "spec.types: the name: 'Worker' is not allowed; write lower-case"),
        ("    worker:", "    1worker:", "'1worker' is not allowed"),
        ("    worker:", "    -worker:", "'-worker' is not allowed"),
        ("builder:\n  image: demo", "builder:\n  image: other", "builder.image: 'other' is not spec.image 'demo'"),
        ("builder:\n  image: demo\n", "", "top level: 'builder' is missing"),
        ("0.2.1", "0.9", "apiVersion: unknown value '0.9'; known: 0.2.1, 0.2.2, 0.2.3"),
        (
            "kind: AIchorManifest",
            "kind: AIchorManifst",
            "kind: unknown value 'AIchorManifst'; did you mean 'AIchorManifest'?",
        ),
        ("  operator: jobset\n", "", "spec: 'operator' is missing"),
        ("operator: jobset", "operator: jobste", "spec.operator: unknown value 'jobste'; did you mean 'jobset'?"),
        ("  command: python3 -u main.py\n", "", "spec: 'command' is missing"),
        ("  image: demo\n  command", "  command", "spec: 'image' is missing"),
        ("command: python3 -u main.py", "command: [python3]", "spec.command: must be what to run, not a list"),
        ("cpus: 20", "cpus: 0", "resources.cpus: 0 is out of range"),
        ("cpus: 20", "cpu: 20", "unknown key 'cpu' in spec.types.worker.resources; did you mean 'cpus'?"),
        ("cpus: 20", "cpuLimitRatio: x", "resources.cpuLimitRatio: must be a number"),
        ("cpus: 20", "accelerators: {gpu: {count: -1}}", "accelerators.gpu.count: -1"),
        (
            "cpus: 20",
            "accelerators: {tpu: {type: v5, topology: 4x4, tpuChipsCount: 4}}",
            "accelerators.tpu: TPUs are not given out here, neither by machines nor on Kubernetes; leave it out",
        ),
        (
            "cpus: 20",
            "accelerators: {gpu: {count: 1, type: mig-1g.10gb}}",
            "'mig-1g.10gb': slices of GPUs are not given out here, neither by machines nor on Kubernetes; write gpu",
        ),
        ("cpus: 20", "shmSizeGB: -1", "shmSizeGB: -1 is out of range"),
        ("spec:", "clone: {depth: 0}\nspec:", "clone.depth: 0 is out of range"),
        ("spec:", "clone: {submodules: true}\nspec:", "clone.submodules: 'true' needs clone.includeDotGit: true"),
        ("spec:", "spec:\n  env: {JOB_INDEX: 1}", "line 6: spec.env: JOB_INDEX is protected"),
        ("spec:", "spec:\n  env: {AICHOR_X: 1}", "AICHOR_X is protected"),
        ("spec:", "spec:\n  env: {VCS_SHA: 1}", "VCS_SHA is protected"),
        ("spec:", "spec:\n  env: {YARD_X: 1}", "YARD_X is protected"),
        ("spec:", "spec:\n  env: {GONE: null}", "line 6: spec.env.GONE: is not set in this shell"),
        ("spec:", "spec:\n  timeout: later", "spec.timeout: cannot read 'later'"),
        ("spec:", "spec:\n  activeDeadlineSeconds: 0", "spec.activeDeadlineSeconds: 0"),
        ("spec:", "spec:\n  maxRestarts: 3", "unknown key 'maxRestarts' in spec; known: "),
        ("spec:", "name: a/b\nspec:", "name: 'a/b' is not a name"),
        ("  types:\n    worker:", "  types: {}\n  worker:", "unknown key 'worker' in spec"),
    ],
)
def test_a_bad_manifest_gets_one_sentence(old: str, new: str, says: str, load: Load) -> None:
    assert old in BASIC
    with pytest.raises(UserError) as caught:
        load(BASIC.replace(old, new, 1))
    assert says in str(caught.value)
    assert str(caught.value).startswith("job.yaml: line ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("types", ["{Head: {}}", "{worker: {count: 2, resources: {ramRatio: 1}}}", "nonsense"])
@pytest.mark.parametrize(
    ("operator", "instead"),
    [
        ("kuberay", "submit a RayJob as it is, or a command with --on kubernetes --kind rayjob --workers N"),
        ("ray", "submit a RayJob as it is"),
        ("xgboost", "run here are jobset, pytorch, batchjob"),
        ("jax", "run here are jobset, pytorch, batchjob"),
        ("tf", "run here are jobset, pytorch, batchjob"),
        ("vertexai", "run here are jobset, pytorch, batchjob"),
    ],
)
def test_operators_that_are_not_run_are_refused_before_their_types(
    operator: str, types: str, instead: str, load: Load
) -> None:
    with pytest.raises(UserError) as caught:
        load(with_operator(operator, types))
    said = f"spec.operator: {operator!r} is not run here, neither on machines nor on Kubernetes; {instead}"
    assert said in str(caught.value)
    assert caught.value.exit_code == 2


def with_operator(operator: str, types: str) -> str:
    return f"{BASIC.partition('  types:')[0].replace('jobset', operator)}  types: {types}\n"


def test_pytorch_is_a_gang_of_its_master_and_its_workers(load: Load) -> None:
    own = "resources: {cpus: 2, ramRatio: 1}"
    spec = load(with_operator("pytorch", f"{{Master: {{{own}}}, Worker: {{count: 3, {own}}}}}"))
    (group,) = spec.groups
    assert (spec.gang, spec.size, group.name, group.resources.cpu_millis) == (True, 4, "Worker", 2000)
    assert spec.submitter.notes[0] == "operator pytorch runs here as plain processes, which start together"
    alone = load(with_operator("pytorch", f"{{worker: {{count: 2, {own}}}}}"))
    assert (alone.gang, alone.size) == (True, 2)


def test_batchjob_is_an_array_of_its_workers(load: Load) -> None:
    spec = load(with_operator("batchjob", "{Worker: {count: 3, resources: {ramRatio: 1}}}"))
    (group,) = spec.groups
    assert (spec.gang, spec.size, group.count, group.completions, group.parallelism) == (False, 3, 1, 3, 3)


@pytest.mark.parametrize(
    ("types", "says"),
    [
        (
            "{Master: {resources: {ramRatio: 1}}, Worker: {resources: {ramRatio: 2}}}",
            "spec.types.Worker.resources: workers that start together are of one kind here; write the same in all",
        ),
        ("{}", "spec.types: there is no worker; write Worker: with its resources"),
        ("{Worker: {count: 0, resources: {ramRatio: 1}}}", "every count is 0"),
    ],
)
def test_a_gang_that_cannot_be_gets_one_sentence(types: str, says: str, load: Load) -> None:
    with pytest.raises(UserError) as caught:
        load(with_operator("pytorch", types))
    assert says in str(caught.value)


def test_the_manifest_is_known_by_its_content_whatever_the_file_is_called(load: Load) -> None:
    assert load(BASIC, "experiment").submitter.source == "aichor"
