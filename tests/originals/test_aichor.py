"""AIchor's demo: its manifests as they are, what their pods find, and what is refused as there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobyard.errors import UserError
from jobyard.executors.environment import job_environment, task_environment
from jobyard.manifests.context import SubmitContext
from jobyard.manifests.load import spec_from_file
from jobyard.manifests.overrides import Overrides
from jobyard.model.resources import Placement, Resources
from jobyard.model.units import parse_cpu_millis
from tests.originals.facts import aichor
from tests.yards import ROOT, TemporaryYard

pytestmark = pytest.mark.slow

FACTS = aichor()
EXAMPLES = ROOT / "examples" / "aichor"
MIB = 1 << 20
Object = dict[str, Any]


@pytest.fixture(scope="module")
def lab() -> Iterator[TemporaryYard]:
    """It has no cluster, and needs none: nothing is submitted."""
    with TemporaryYard() as yard:
        yield yard


def a_manifest(scenario: str) -> Object:
    types = {}
    for name, fact in FACTS["scenarios"][scenario]["types"].items():
        resources = {"cpus": fact["cpus"], "ramRatio": fact["ramRatio"], "shmSizeGB": 0}
        counts = {key: fact[key] for key in ("count", "completions", "parallelisms") if key in fact}
        types[name] = {**counts, "resources": resources}
    spec = {"operator": "jobset", "image": "jobset-multi-jobs", "command": f"python3 -u src/main.{scenario}.py"}
    builder = {"image": "jobset-multi-jobs", "dockerfile": "./Dockerfile", "context": "."}
    return {
        "kind": "AIchorManifest",
        "apiVersion": "0.2.1",
        "builder": builder,
        "spec": {**spec, "types": types},
    }


@pytest.mark.parametrize("scenario", FACTS["scenarios"])
def test_a_scenario_is_a_jobset_of_its_types(lab: TemporaryYard, scenario: str) -> None:
    file = lab.write(f"manifest.{scenario}.yaml", yaml.safe_dump(a_manifest(scenario), sort_keys=False))
    (made,) = yaml.safe_load_all(lab.ok("submit", "--on", "kubernetes", "--render", file).out)
    assert made["kind"] == "JobSet"
    types = FACTS["scenarios"][scenario]["types"]
    found = {each["name"]: each for each in made["spec"]["replicatedJobs"]}
    assert list(found) == sorted(types), "the order in which JOB_GLOBAL_INDEX counts"
    for name, fact in types.items():
        job = found[name]["template"]["spec"]
        counts = (fact["count"], fact.get("completions", 1), fact.get("parallelisms", 1))
        assert (found[name]["replicas"], job["completions"], job["parallelism"]) == counts
        (container,) = job["template"]["spec"]["containers"]
        assert (container["name"], container["image"]) == (name, "jobset-multi-jobs")
        assert container["command"][-1] == f"python3 -u src/main.{scenario}.py"
        assert_resources(container["resources"], fact)


def assert_resources(found: Object, fact: Object) -> None:
    memory = round(fact["cpus"] * fact["ramRatio"] * FACTS["bytes_of_a_gb"] / MIB)
    assert found["requests"]["memory"] == f"{memory}Mi"
    assert parse_cpu_millis(found["requests"]["cpu"], "") == fact["cpus"] * 1000
    assert parse_cpu_millis(found["limits"]["cpu"], "") == fact["cpus"] * 1000 * FACTS["cpu_limit_ratio"]


@pytest.mark.parametrize("fact", FACTS["seen"], ids=lambda fact: f"{fact['scenario']} {fact['pod']}")
def test_a_task_on_a_machine_finds_what_the_pod_found(fact: Object) -> None:
    """On a real cluster: tests/cluster/test_aichor.py."""
    file = EXAMPLES / f"manifest.{fact['scenario']}.yaml"
    spec = spec_from_file(file, Overrides(), SubmitContext(str(EXAMPLES), {}, "ada"))
    group, replica, completion = fact["pod"]
    label = f"{group}/{replica}.{completion}" if "." in spec.label_of(0) else f"{group}/{replica}"
    own = task_environment("5e7a11ce", spec, spec.number_of(label), 1, Placement("here", Resources()))
    env = {**job_environment("5e7a11ce", 7, spec), **own}
    assert [env[name] for name in FACTS["variables"]] == fact["found"]


@pytest.mark.parametrize("scenario", FACTS["scenarios"])
def test_our_example_of_a_scenario_says_the_same(scenario: str) -> None:
    made = yaml.safe_load((EXAMPLES / f"manifest.{scenario}.yaml").read_text())
    assert made["spec"]["types"] == a_manifest(scenario)["spec"]["types"]


@pytest.mark.parametrize("change", FACTS["refused"], ids=str)
def test_a_manifest_that_dies_there_is_refused_in_one_sentence(tmp_path: Path, change: Object) -> None:
    said = refusal(tmp_path, changed(a_manifest("5-1-1"), change["path"].split("."), change["value"]))
    assert re.match(r"manifest\.yaml: line \d+: \S", said), said
    assert "\n" not in said


@pytest.mark.parametrize("operator", FACTS["other_operators"])
def test_an_operator_that_is_not_run_here_is_named_before_its_types_are_read(tmp_path: Path, operator: str) -> None:
    said = refusal(tmp_path, changed(a_manifest("5-1-1"), ["spec", "operator"], operator))
    assert f"spec.operator: {operator!r} is not run here, neither on machines nor on Kubernetes" in said


def changed(manifest: Object, path: list[str], value: Any) -> Object:
    made = deepcopy(manifest)
    inner = made
    for key in path[:-1]:
        inner = inner[key]
    if value is None:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return made


def refusal(directory: Path, manifest: Object) -> str:
    (directory / "manifest.yaml").write_text(yaml.safe_dump(manifest, sort_keys=False))
    with pytest.raises(UserError) as caught:
        spec_from_file(Path("manifest.yaml"), Overrides(), SubmitContext(str(directory), {}, "ada"))
    return str(caught.value)
