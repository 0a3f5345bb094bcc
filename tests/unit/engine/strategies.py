"""Random jobs for property tests: small, and such that an empty `big_node` can run any of them."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from jobyard.model.job import Command, Dependency, GroupSpec, JobSpec
from jobyard.model.kubernetes import Toleration
from jobyard.model.node import Foreign, Node, Taint
from jobyard.model.policy import FailurePolicy
from jobyard.model.resources import Resources
from jobyard.model.training import Elastic, Size, Training
from tests.builders import a_cluster_node, a_job, a_node, with_words

NODES = {
    "n0": a_node("n0", cpus=4),
    "n1": a_node("n1", cpus=2, gpus=2),
    "n2": a_node("n2", cpus=8, memory_mib=8192, gpus=1, gpu_mib=40000),
}


CLUSTER_NODES = {
    "prod/n1": a_cluster_node("n1", cpus=4, labels=("zone=a",)),
    "prod/n2": a_cluster_node("n2", cpus=2, gpus=2, taints=(Taint("gpu", "yes"),)),
}


def big_cluster_node() -> Node:
    return replace(a_node("prod/big", 256, 1 << 20, gpus=80), executor="kubernetes", labels=("zone=a",))


def big_node() -> Node:
    return a_node("big", cpus=64, memory_mib=1 << 20, gpus=40)


resources = st.builds(
    Resources,
    cpu_millis=st.sampled_from([0, 500, 1000, 2000]),
    memory_mib=st.sampled_from([0, 0, 1000, 4000]),
    gpus=st.sampled_from([0, 0, 0, 1, 2]),
    gpu_memory_mib=st.sampled_from([0, 20000, 30000]),
    gpu_percent=st.sampled_from([0, 0, 40, 70]),
    whole_node=st.sampled_from([False] * 9 + [True]),
)


def groups(name: str) -> st.SearchStrategy[GroupSpec]:
    return st.builds(
        GroupSpec,
        command=st.just(Command(shell="true")),
        name=st.just(name),
        count=st.sampled_from([1, 1, 2, 3, 0]),
        completions=st.integers(1, 5),
        parallelism=st.sampled_from([None, None, 1, 2]),
        resources=resources,
        node_selector=st.sampled_from([{}, {}, {"zone": "a"}]),
        tolerations=st.sampled_from([(), (Toleration("gpu", "Exists"),)]),
    )


def jobs(known: list[str]) -> st.SearchStrategy[JobSpec]:
    """`known` are jobs that it may depend on."""
    dependencies = st.builds(Dependency, st.sampled_from(known), st.booleans()) if known else st.nothing()
    return (
        st.builds(
            a_job,
            name=st.just("job"),
            groups=st.one_of(st.tuples(groups("")), st.tuples(groups("a"), groups("b"))).filter(
                lambda found: sum(group.size for group in found) > 0
            ),
            gang=st.sampled_from([False, False, True]),
            priority=st.integers(-1, 1),
            limit=st.sampled_from([None, None, 1, 3]),
            deadline_seconds=st.sampled_from([None, None, None, 4.0]),
            retries=st.sampled_from([0, 0, 1, 2]),
            retry_delay_seconds=st.sampled_from([None, None, 0.0, 2.0]),
            start_delay_seconds=st.sampled_from([0.0, 0.0, 0.0, 1.5]),
            max_fails=st.sampled_from([None, None, 0, 1]),
            enough_successes=st.sampled_from([None, None, None, 1, 2]),
            lets_running_end=st.sampled_from([False, False, True]),
            on_failure=st.sampled_from([None, None, FailurePolicy.CONTINUE, FailurePolicy.STOP]),
            after=st.lists(dependencies, max_size=2).map(tuple) if known else st.just(()),
            on=st.sampled_from(["", "", "", "local", "n0,local", "fast,big"]),
            cluster=st.sampled_from(["", "", "", "prod"]),
            kind=st.sampled_from(["", "", "PyTorchJob"]),
            overcommit=st.sampled_from([False, False, True]),
            training=st.sampled_from(
                [None, None, Training(epochs=5), Training(preemptible=True, estimated_seconds=9.0)]
            ),
            elastic=st.sampled_from(
                [None, None, Elastic(gpus=(1, 3)), Elastic(workers=(1, 4)), Elastic((0, 2), (2, 3))]
            ),
        )
        .map(_with_possible_sizes)
        .filter(_fits_together)
    )


def _with_possible_sizes(spec: JobSpec) -> JobSpec:
    """Only a job of one group that has one task per worker can be elastic; more than one worker is a gang."""
    group = spec.groups[0]
    if spec.elastic is None or len(spec.groups) > 1 or group.completions > 1 or group.resources.whole_node:
        return replace(spec, elastic=None)
    least = Size((spec.elastic.workers or (1, 1))[0], (spec.elastic.gpus or (group.resources.gpus,))[0])
    return with_words(spec, gang=spec.elastic.workers is not None, limit=None).sized(least)


def _fits_together(spec: JobSpec) -> bool:
    """A gang whose tasks want a node each may never find enough of them."""
    return not spec.starts_together or spec.size == 1 or not any(group.resources.whole_node for group in spec.groups)


foreign = st.builds(
    Foreign,
    cpu_millis=st.integers(0, 3000),
    memory_mib=st.integers(0, 9000),
    device_mib=st.sampled_from([(), ((0, 100),), ((0, 50000),)]),
    whole_devices=st.sampled_from([(), (1,)]),
    device_percent=st.sampled_from([(), ((0, 50),), ((0, 100),)]),
)
