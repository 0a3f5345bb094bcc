"""Jobs of the yard in real containers on a real cluster."""

from __future__ import annotations

import os
import signal

import pytest

from tests.cluster.images import SMALL
from tests.cluster.node import NODE
from tests.cluster.yards import ClusterYard
from tests.waiting import until

ON = ("--on", "kubernetes", "--image", SMALL)


def test_a_command_runs_in_a_pod_and_its_output_comes_home(yard: ClusterYard) -> None:
    job = yard.submit(*ON, "-c", "0.1", "--", "sh", "-c", "echo hello from $YARD_NODE; echo oops >&2")
    ended = yard.ended(job)
    assert ended["state"] == "SUCCEEDED", ended
    assert f"hello from {NODE}" in yard.logs(job)
    assert "oops" in yard.logs(job)
    (task,) = yard.tasks(job)
    assert task["node"] == f"kubernetes/{NODE}"
    (pod,) = yard.pods(job)
    assert task["unit"] == pod["metadata"]["name"]


def test_an_array_is_one_job_and_every_task_has_its_own_number(yard: ClusterYard) -> None:
    job = yard.submit(*ON, "-c", "0.1", "--array", "0-5", "--", "sh", "-c", "echo task $SLURM_ARRAY_TASK_ID")
    assert yard.ended(job)["state"] == "SUCCEEDED"
    assert len(yard.objects(job)) == 1
    for task in range(6):
        assert yard.logs(job, "--task", str(task)).strip() == f"task {task}"


def test_a_task_that_fails_is_tried_again_and_told_with_its_exit_code(yard: ClusterYard) -> None:
    job = yard.submit(
        *ON, "-c", "0.1", "--retries", "1", "--array", "0-1", "--", "sh", "-c", "exit $SLURM_ARRAY_TASK_ID"
    )
    assert yard.ended(job)["state"] == "FAILED"
    good, bad = yard.tasks(job)
    assert (good["state"], good["attempt"]) == ("SUCCEEDED", 1)
    assert (bad["state"], bad["attempt"], bad["exit_code"]) == ("FAILED", 2, 1)


def test_cancelling_removes_every_object(yard: ClusterYard) -> None:
    job = yard.submit(*ON, "-c", "0.1", "--", "sleep", "1000")
    yard.wait_state(job, "RUNNING")
    yard.ok("cancel", job, "--force")
    assert yard.ended(job)["state"] == "CANCELLED"
    until(lambda: not yard.objects(job) and not yard.pods(job))


def test_a_line_of_a_file_is_a_task(yard: ClusterYard) -> None:
    yard.write("lines.txt", "echo one\necho two\nexit 3\n")
    job = yard.submit(*ON, "-c", "0.1", "lines.txt")
    assert yard.ended(job)["state"] == "FAILED"
    assert [yard.logs(job, "--task", str(task)).strip() for task in range(2)] == ["one", "two"]
    assert [task["exit_code"] for task in yard.tasks(job)] == [0, 0, 3]


def test_a_failed_task_of_an_array_can_be_retried_alone(yard: ClusterYard) -> None:
    job = yard.submit(*ON, "-c", "0.1", "--array", "0-2", "--", "sh", "-c", "echo run; [ $SLURM_ARRAY_TASK_ID != 1 ]")
    assert yard.ended(job)["state"] == "FAILED"
    yard.ok("retry", job)
    until(lambda: [task["attempt"] for task in yard.tasks(job)] == [1, 2, 1] and yard.ended(job))
    assert len(yard.objects(job)) == 2  # the array, and the task alone
    assert yard.logs(job, "--task", "1", "--attempt", "2").strip() == "run"


@pytest.mark.long
def test_more_tasks_than_fit_run_as_room_allows(yard: ClusterYard) -> None:
    job = yard.submit(*ON, "-c", "0.1", "--array", "0-9", "--limit", "3", "--", "sleep", "0.2")
    assert yard.ended(job)["state"] == "SUCCEEDED"
    (array,) = yard.objects(job)
    assert array["spec"]["parallelism"] <= 3


def test_a_killed_server_finds_its_pods_again(yard: ClusterYard) -> None:
    job = yard.submit(*ON, "-c", "0.1", "--", "sh", "-c", "echo begin; sleep 4; echo end")
    yard.wait_state(job, "RUNNING")
    pid = yard.server_pid()
    assert pid
    os.kill(pid, signal.SIGKILL)
    yard.ok("ls")  # brings a server back
    assert yard.ended(job)["state"] == "SUCCEEDED"
    assert yard.logs(job) == "begin\nend\n"
    assert yard.tasks(job)[0]["attempt"] == 1
    assert len(yard.pods(job)) == 1


def test_a_deleted_pod_is_run_again_and_counted_once(yard: ClusterYard) -> None:
    script = "[ $SLURM_ARRAY_TASK_ID.$YARD_ATTEMPT = 1.1 ] && sleep 1000; echo run"
    job = yard.submit(*ON, "-c", "0.1", "--array", "0-1", "--", "sh", "-c", script)
    lost = until(lambda: next((task["unit"] for task in yard.tasks(job)[1:] if task["state"] == "RUNNING"), None))
    yard.delete_pod(lost)
    assert yard.ended(job)["state"] == "SUCCEEDED"
    first, second = yard.tasks(job)
    assert first["attempt"] == 1
    assert second["attempt"] == 2
    assert second["unit"] != lost


@pytest.mark.long
def test_an_image_that_cannot_be_had_is_explained(yard: ClusterYard) -> None:
    job = yard.submit("--on", "kubernetes", "--image", "jobyard.test/nothing:1", "-c", "0.1", "--", "true")
    said = until(lambda: text if "image" in (text := yard.ok("why", job).out) else None)
    assert "jobyard.test/nothing:1" in said
    yard.ok("cancel", job)
    assert yard.ended(job)["state"] == "CANCELLED"


def test_what_fits_nowhere_is_refused_at_submit(yard: ClusterYard) -> None:
    done = yard.run("submit", *ON, "--gpus", "64", "--", "true")
    assert done.code == 2
    assert "64 GPUs" in done.err


def test_a_quota_of_the_namespace_is_kept_and_told(yard: ClusterYard) -> None:
    body = {"metadata": {"name": "small"}, "spec": {"hard": {"requests.cpu": "150m"}}}
    quotas = yard.path("/api/v1", "resourcequotas")
    yard.cluster.api.create(quotas, body)
    try:
        job = yard.submit(*ON, "-c", "0.1", "--", "sleep", "1000")
        yard.wait_state(job, "RUNNING")
        other = yard.submit(*ON, "-c", "0.1", "--", "true")
        said = until(lambda: text if "quota" in (text := yard.ok("why", other).out) else None)
        assert "0.05" in said
        assert not yard.objects(other)
        yard.ok("cancel", job, "--force")
        assert yard.ended(other)["state"] == "SUCCEEDED"
    finally:
        yard.cluster.api.delete(f"{quotas}/small")


def test_an_invalid_request_is_refused_in_the_servers_own_words(yard: ClusterYard) -> None:
    done = yard.run(
        "submit", "--on", "kubernetes", "--image", "UPPER CASE", "--volume", "no such:relative", "--", "true"
    )
    assert done.code == 2
    assert len(done.err.strip().splitlines()) == 1


def test_a_cancelled_task_of_an_array_does_not_run_and_the_others_do(yard: ClusterYard) -> None:
    words = ("--array", "0-3", "--limit", "1", "--", "sh", "-c", "echo run; sleep 1")
    job = yard.submit(*ON, "-c", "0.1", *words)
    yard.wait_state(job, "RUNNING")
    yard.ok("cancel", job, "--task", "2")
    ended = yard.ended(job)
    assert [task["state"] for task in yard.tasks(job)] == ["SUCCEEDED", "SUCCEEDED", "CANCELLED", "SUCCEEDED"], ended


def test_who_is_tried_again_without_its_secret_is_told_so(yard: ClusterYard) -> None:
    token = yard.write("token", "x")
    job = yard.submit(*ON, "-c", "0.1", "--mount-secret", f"{token}=/etc/app/token", "--", "false")
    assert yard.ended(job)["state"] == "FAILED"
    (made,) = yard.objects(job)
    (name,) = [each["secret"]["secretName"] for each in made["spec"]["template"]["spec"]["volumes"] if "secret" in each]
    until(lambda: yard.owners_of_secret(name) == [made["metadata"]["name"]])
    yard.ok("retry", job)
    until(lambda: yard.tasks(job)[0]["attempt"] == 2 and yard.job(job)["state"] == "FAILED")
    assert yard.tasks(job)[0]["reason"] == "ExitCode"  # it is kept for who tries again
    yard.cluster.kubectl("delete", "configmap", name, f"--namespace={yard.namespace}")
    yard.ok("retry", job)
    until(lambda: yard.tasks(job)[0]["attempt"] == 3 and yard.job(job)["state"] == "FAILED")
    assert "submit it again with --mount-secret" in yard.tasks(job)[0]["message"]


def test_each_task_has_a_file_of_its_output_also_when_the_server_is_killed_as_tasks_end(yard: ClusterYard) -> None:
    words = ("--output", "o/%4t.out", "-c", "0.1", "--array", "0-5")
    job = yard.submit(*ON, *words, "--", "sh", "-c", "echo task $SLURM_ARRAY_TASK_ID; echo oops >&2")
    for ended in (1, 4):
        until(lambda ended=ended: yard.json("show", job)["counts"]["succeeded"] >= ended)  # type: ignore[misc]
        if pid := yard.server_pid():
            os.kill(pid, signal.SIGKILL)
    yard.ok("wait", job)
    assert {path.name: sorted(path.read_text().splitlines()) for path in (yard.work / "o").iterdir()} == {
        f"{task:04}.out": ["oops", f"task {task}"] for task in range(6)
    }
