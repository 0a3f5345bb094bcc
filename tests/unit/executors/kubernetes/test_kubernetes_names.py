"""Are names of objects those that Kubernetes takes, and different where the objects are?"""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders import a_group, a_job

from jobyard.errors import UserError
from jobyard.executors.kubernetes.names import (
    GROUP,
    LABEL_MOST,
    NAME_MOST,
    host_name,
    job_object_name,
    jobset_object_name,
    labels_of,
    slug,
    task_object_name,
)
from jobyard.executors.protocol import SubmittedJob

LABEL = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")


def submitted(name: str = "train", tasks: int = 1) -> SubmittedJob:
    return SubmittedJob("ab12", 1, a_job(tasks, name=name))


@given(st.text(max_size=80), st.integers(min_value=4, max_value=LABEL_MOST))
def test_any_text_becomes_a_label(text: str, most: int) -> None:
    made = slug(text, most)
    assert LABEL.fullmatch(made)
    assert len(made) <= most


@given(st.text(min_size=1, max_size=80), st.integers(min_value=1, max_value=10**6))
def test_the_host_names_of_a_jobs_pods_are_labels(name: str, tasks: int) -> None:
    made = job_object_name(submitted(name, tasks), 3)
    assert made.endswith("-ab12-a3")
    assert len(made) <= NAME_MOST
    assert LABEL.fullmatch(f"{made}-{tasks - 1}")
    assert len(f"{made}-{tasks - 1}") <= LABEL_MOST


def test_an_array_its_tasks_and_their_attempts_have_different_names() -> None:
    job = submitted(tasks=3)
    names = [job_object_name(job, 1), job_object_name(job, 2), *(task_object_name(job, task, 1) for task in (0, 1))]
    assert names == ["train-ab12-a1", "train-ab12-a2", "train-ab12-t0-a1", "train-ab12-t1-a1"]


def test_a_group_that_leaves_no_room_for_a_name_is_refused() -> None:
    job = SubmittedJob("ab12", 1, a_job(groups=(a_group("w" * 50),)))
    with pytest.raises(UserError, match="give the group a shorter name"):
        jobset_object_name(job, 1)


def test_a_group_whose_name_is_no_label_is_refused() -> None:
    job = SubmittedJob("ab12", 1, a_job(groups=(a_group("worker-"),)))
    with pytest.raises(UserError, match="a letter or digit at the end"):
        jobset_object_name(job, 1)


def test_a_pod_of_a_jobset_is_found_by_its_group_replica_and_completion() -> None:
    assert host_name("train-ab12-a1", a_group("worker"), 2, 1) == "train-ab12-a1-worker-2-1.train-ab12-a1"


def test_labels_say_whose_and_which_attempt_it_is() -> None:
    labels = labels_of(submitted(), 2, a_group("worker"), "yard-1")
    assert labels["jobyard.dev/job"] == "ab12"
    assert (labels["jobyard.dev/attempt"], labels[GROUP], labels["jobyard.dev/yard"]) == ("2", "worker", "yard-1")
    assert GROUP not in labels_of(submitted(), 2, a_group())
