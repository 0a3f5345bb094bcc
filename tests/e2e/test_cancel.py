"""`yard cancel`: politely, after the grace, at once; one task, one job, all."""

from __future__ import annotations

from tests.waiting import until
from tests.yards import TemporaryYard, is_alive

POLITE = "trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
DEAF = "trap '' TERM; echo ready $$; while :; do sleep 0.05; done"


def says(yard: TemporaryYard, job: str, word: str) -> str:
    def look() -> str | None:
        text = yard.logs(job)
        return text if word in text else None

    return until(look)


def test_a_cancelled_task_may_say_good_bye(yard: TemporaryYard) -> None:
    job = yard.submit("--", POLITE)
    says(yard, job, "ready")
    yard.ok("cancel", job)
    assert yard.run("wait", job).code == 1
    assert yard.job(job)["state"] == "CANCELLED"
    assert yard.logs(job) == "ready\nbye\n"


def test_a_deaf_task_is_killed_after_its_grace(yard: TemporaryYard) -> None:
    file = yard.write("deaf.yaml", f"command: |\n  {DEAF}\ngrace: 0.3s\n")
    job = yard.submit(file)
    pid = int(says(yard, job, "ready").split()[1])
    yard.ok("cancel", job)
    assert yard.run("wait", job).code == 1
    assert yard.job(job)["state"] == "CANCELLED"
    assert not is_alive(pid)


def test_force_kills_at_once_also_after_a_polite_cancel(yard: TemporaryYard) -> None:
    job = yard.submit("--", DEAF)
    pid = int(says(yard, job, "ready").split()[1])
    yard.ok("cancel", job)
    assert yard.job(job)["state"] == "STOPPING"
    yard.ok("cancel", "--force", job)
    until(lambda: yard.job(job)["state"] == "CANCELLED", seconds=8)
    assert not is_alive(pid)


def test_everything_a_task_started_ends_with_it(yard: TemporaryYard) -> None:
    job = yard.submit("--", "sleep 1000 & echo $!; setsid sleep 1000 & wait")
    pid = int(says(yard, job, "\n").split()[0])
    yard.ok("cancel", "--force", job)
    yard.run("wait", job)
    assert not is_alive(pid)


def test_one_task_of_an_array_can_be_cancelled(yard: TemporaryYard) -> None:
    job = yard.submit("-a", "0-2", "--cpus", "0.1", "--", "while [ ! -e free ]; do sleep 0.02; done")
    yard.wait_state(job, "RUNNING")
    yard.ok("cancel", job, "--task", "1")
    until(lambda: yard.tasks(job)[1]["state"] == "CANCELLED")
    yard.write("free", "")
    yard.run("wait", job)
    assert [task["state"] for task in yard.tasks(job)] == ["SUCCEEDED", "CANCELLED", "SUCCEEDED"]


def test_a_waiting_job_is_cancelled_without_ever_running(yard: TemporaryYard) -> None:
    yard.submit("--cpus", "2", "--", "sleep", "60")
    waiting = yard.submit("--cpus", "2", "--", "echo never > ran-anyway")
    yard.ok("cancel", waiting)
    assert yard.job(waiting)["state"] == "CANCELLED"
    assert not (yard.work / "ran-anyway").exists()


def test_cancelling_what_has_ended_is_no_error_and_changes_nothing(yard: TemporaryYard) -> None:
    job = yard.ok("run", "-q", "--", "true").out.strip()
    assert "succeeded" in yard.ok("cancel", job).out
    assert yard.job(job)["state"] == "SUCCEEDED"


def test_all_means_every_job_that_has_not_ended(yard: TemporaryYard) -> None:
    jobs = [yard.submit("--cpus", "0.1", "--", "sleep", "60") for _ in range(3)]
    assert len(yard.ok("cancel", "--all", "--force").out.splitlines()) == 3
    yard.run("wait", *jobs)
    assert {yard.job(job)["state"] for job in jobs} == {"CANCELLED"}
    assert "nothing to cancel" in yard.ok("cancel", "--all").err


def test_a_misspelt_job_leaves_the_others_alone(yard: TemporaryYard) -> None:
    job = yard.submit("--", "sleep", "60")
    done = yard.run("cancel", job, "no-such-job")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert yard.job(job)["finished_at"] is None
    assert yard.run("cancel").code == 2


def test_a_name_of_two_live_jobs_is_refused_and_of_one_hits_that(yard: TemporaryYard) -> None:
    first, second = (yard.submit("-n", "twin", "--cpus", "0.1", "--", "sleep", "60") for _ in range(2))
    refused = yard.run("cancel", "twin")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "2 jobs that have not ended are named 'twin'" in refused.err
    yard.ok("cancel", second)
    yard.wait_state(second, "CANCELLED")
    assert yard.ok("cancel", "twin").out.startswith(f"job {yard.job(first)['number']} (twin) ")


def test_a_job_that_cannot_be_launched_says_why_where_its_output_is_followed(yard: TemporaryYard) -> None:
    done = yard.run("run", "--workers", "1", "--epochs", "1", "-e", "MASTER_PORT=abc", "--", "true")
    assert done.code == 1
    assert "MASTER_PORT 'abc' is no number; give a port, like 29500" in done.err
