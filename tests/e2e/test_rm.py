"""`yard rm`: what goes, what stays, and what is refused."""

from __future__ import annotations

from tests.waiting import until
from tests.yards import TemporaryYard


def test_a_removed_job_leaves_no_file_and_no_number_comes_again(own_yard: TemporaryYard) -> None:
    own_yard.ok("run", "--", "echo hello; echo x > $YARD_CHECKPOINT_DIR/x")
    runs = own_yard.submit("--", "echo begun; until [ -e go ]; do sleep 0.02; done")
    job = own_yard.job("1")["id"]
    files = own_yard.directory / "agent" / "jobs"
    assert (files / job).exists()
    refused = own_yard.run("rm", "1", runs)
    assert (refused.code, refused.out) == (2, "")
    assert "job 2 is " in refused.err
    assert "end it first" in refused.err
    assert own_yard.ok("rm", "1", job).out == "job 1 (echo) removed\n"
    until(lambda: not (files / job).exists())
    assert "job 1 is gone: it was removed" in own_yard.run("show", "1").err
    own_yard.write("go", "")
    assert own_yard.run("wait", runs).code == 0
    assert [job["number"] for job in own_yard.json("rm", "last")["jobs"]] == [2]
    own_yard.ok("run", "--", "true")
    assert own_yard.job()["number"] == 3


def test_gc_says_what_would_go_and_lets_it_go_but_not_what_is_kept() -> None:
    with TemporaryYard(YARD_KEEP_SECONDS="0") as yard:
        yard.ok("run", "--name", "old", "--", "true")
        yard.ok("run", "--name", "wanted", "--keep", "--", "true")
        planned = yard.ok("gc", "--dry-run")
        assert "it ended" in planned.out
        assert "old" in planned.out
        assert "1 job" in planned.err
        assert "would go" in planned.err
        assert [job["name"] for job in yard.json("gc")["jobs"]] == ["old"]
        assert [job["name"] for job in yard.json("ls", "-a")] == ["wanted"]
        assert yard.ok("rm", "wanted").out == "job 2 (wanted) removed\n"
