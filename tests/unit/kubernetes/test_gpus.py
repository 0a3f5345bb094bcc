"""A pod with another number of GPUs, whoever wrote it."""

from __future__ import annotations

from typing import Any

import pytest

from jobyard.kubernetes.gpus import GPU, give_gpus, gpus_of, pod_gpus


def a_container(least: int | None = None, most: int | None = None, **more: Any) -> dict[str, Any]:
    sides = {"requests": least, "limits": most}
    resources = {side: {GPU: count} for side, count in sides.items() if count is not None}
    return {"name": "x", **({"resources": resources} if resources else {}), **more}


def given(gpus: int, *containers: dict[str, Any]) -> list[dict[str, Any]]:
    pod = {"containers": list(containers)}
    give_gpus(pod, gpus)
    return pod["containers"]


def test_what_is_not_said_of_gpus_is_as_what_is_said() -> None:
    assert gpus_of(a_container(2, 4)) == (2, 4)
    assert gpus_of(a_container(most=4)) == gpus_of(a_container(least=4)) == (4, 4)
    assert gpus_of(a_container()) == (0, 0)
    assert pod_gpus({"containers": [a_container(2, 4), a_container(most=1), a_container()]}) == 3


@pytest.mark.parametrize(
    ("words", "new"),
    [
        (["--num_processes=2"], ["--num_processes=4"]),
        (["--num-processes=2"], ["--num-processes=4"]),
        (["--num_processes", "2", "--x", "2"], ["--num_processes", "4", "--x", "2"]),
        (["--num-processes", "2"], ["--num-processes", "4"]),
        (["sh", "-c", "run --num_processes 2 --x=2"], ["sh", "-c", "run --num_processes 4 --x=2"]),
        (["sh", "-c", "run --num-processes  2\nend"], ["sh", "-c", "run --num-processes  4\nend"]),
        (["--num_processes", "$(NGPU)"], ["--num_processes", "$(NGPU)"]),
        (["--num_processes"], ["--num_processes"]),
        (["--num_processes_per_node=2"], ["--num_processes_per_node=2"]),
    ],
)
def test_the_number_of_processes_follows_in_every_spelling(words: list[str], new: list[str]) -> None:
    for key in ("command", "args"):
        (container,) = given(4, a_container(2, 4, **{key: words}))
        assert container[key] == new


def test_a_variable_follows_that_stands_there_as_a_value() -> None:
    secret = {"name": "NGPU", "valueFrom": {"fieldRef": {}}}
    (container,) = given(3, a_container(2, 4, env=[{"name": "NGPU", "value": "2"}, secret, {"name": "X"}]))
    assert container["env"] == [{"name": "NGPU", "value": "3"}, secret, {"name": "X"}]


def test_the_container_with_the_range_gets_what_the_others_leave() -> None:
    env = [{"name": "NGPU", "value": "1"}]
    fixed, ranged = given(5, a_container(1, 1), a_container(2, 4, env=env, args=["--num_processes=1"]))
    assert fixed == a_container(1, 1)
    assert ranged["resources"] == {"requests": {GPU: "4"}, "limits": {GPU: "4"}}
    assert (ranged["env"][0]["value"], ranged["args"]) == ("4", ["--num_processes=4"])


def test_without_a_range_it_is_the_first_container_that_has_gpus() -> None:
    sidecar, first, second = given(4, a_container(), a_container(1, 1), a_container(1, 1))
    assert sidecar == a_container()
    assert first["resources"]["limits"] == {GPU: "3"}
    assert second == a_container(1, 1)


def test_a_pod_without_gpus_stays_as_it_is() -> None:
    assert given(4, a_container(args=["--num_processes=1"])) == [a_container(args=["--num_processes=1"])]
