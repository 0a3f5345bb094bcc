"""What runs first: dependencies, priority, room."""

from __future__ import annotations

from tests.yards import TemporaryYard


def test_a_chain_runs_in_order(yard: TemporaryYard) -> None:
    first = yard.submit("--", "sleep 0.3; echo 1 >> chain")
    second = yard.submit("--after", first, "--", "echo 2 >> chain")
    third = yard.submit("--after", f"afterok:{second}", "--", "echo 3 >> chain")
    assert yard.run("wait", third).code == 0
    assert (yard.work / "chain").read_text() == "1\n2\n3\n"


def test_a_dependent_says_what_it_waits_for(yard: TemporaryYard) -> None:
    first = yard.submit("--", "sleep", "60")
    second = yard.submit("--after", first, "--", "true")
    assert yard.job(second)["reason"] == "Dependency"
    assert f"waits for job {yard.job(first)['number']} to succeed" in yard.ok("why", second).out


def test_after_a_failure_dependents_are_cancelled_down_the_chain(yard: TemporaryYard) -> None:
    first = yard.submit("--", "while [ ! -e go ]; do sleep 0.02; done; exit 1")
    second = yard.submit("--after", f"afterok:{first}", "--", "touch second-ran")
    third = yard.submit("--after", second, "--", "touch third-ran")
    anyway = yard.submit("--after", f"afterany:{first}", "--", "echo anyway")
    (yard.work / "go").touch()
    assert yard.run("wait", first, second, third, anyway).code == 1
    assert [yard.job(job)["state"] for job in (second, third, anyway)] == ["CANCELLED", "CANCELLED", "SUCCEEDED"]
    assert yard.job(second)["message"].startswith(f"job {yard.job(first)['number']} failed")
    assert not list(yard.work.glob("*-ran"))


def test_a_job_after_one_that_failed_already_is_refused(yard: TemporaryYard) -> None:
    yard.run("run", "-n", "broken", "--", "false")
    done = yard.run("run", "--after", "broken", "--", "true")
    assert done.code == 2
    assert "failed, so this one would never start" in done.err
    assert yard.job()["name"] == "broken"


def test_a_higher_priority_goes_first(yard: TemporaryYard) -> None:
    yard.wait_state(yard.submit("--cpus", "2", "--", "while [ ! -e free-cpus ]; do sleep 0.02; done"), "RUNNING")
    jobs = [
        yard.submit("--cpus", "2", "-p", priority, "-n", f"p{priority}", "--", f"echo {priority} >> order")
        for priority in ("0", "-5", "7", "3")
    ]
    yard.write("free-cpus", "")
    yard.run("wait", *jobs)
    assert (yard.work / "order").read_text().split() == ["7", "3", "0", "-5"]


def test_a_small_job_may_use_room_that_a_large_one_cannot(yard: TemporaryYard) -> None:
    yard.wait_state(yard.submit("--cpus", "1.5", "--", "sleep", "60"), "RUNNING")
    large = yard.submit("--cpus", "2", "--", "true")
    assert yard.run("wait", "--timeout", "0.3s", large).code == 124
    assert yard.job(large)["reason"] == "Resources"
