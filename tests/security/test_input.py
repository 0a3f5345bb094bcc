"""No input becomes code, no command hits the wrong thing, and no name steers a terminal: through a real server."""

from __future__ import annotations

from jobyard.model.inputs import Column, Inputs, Source
from jobyard.model.job import Command, GroupSpec, JobSpec
from jobyard.model.lines import Lines
from tests.builders import one_column
from tests.conftest import MakeYard
from tests.harmless import assert_harmless
from tests.security.servers import TeamServer
from tests.waiting import until
from tests.yards import TemporaryYard

EVIL = "evil\x1b[31mred\x1b]0;title\x07\x9b2J\u202egnol\u200b"


def test_a_line_over_rest_never_becomes_code(yard: TemporaryYard) -> None:
    yard.ok("ls")
    entries = Lines.of(["$(touch bad)", "`touch bad`", "';touch bad;'"])
    command = Command(shell='echo "file: {}"', inputs=one_column(entries))
    job = yard.client.submit(JobSpec("x", (GroupSpec(command, completions=3),), workdir=str(yard.work)))
    yard.ok("wait", job.id)
    assert sorted(yard.logs(job.id).splitlines()) == sorted(f"{i}| file: {line}" for i, line in enumerate(entries))
    assert not (yard.work / "bad").exists()
    inputs = Inputs((Source((Column(entries, "x"),)), Source((Column(entries),))))
    product = GroupSpec(Command(shell='echo "{x}" {2/}', inputs=inputs), completions=9)
    job = yard.client.submit(JobSpec("y", (product,), workdir=str(yard.work)))
    yard.ok("wait", job.id)
    assert len(yard.logs(job.id).splitlines()) == 9
    assert not (yard.work / "bad").exists()


def test_a_request_in_which_a_line_would_be_code_is_refused(team: TeamServer) -> None:
    token = team.token("ann")
    for shell in ("bash -c 'echo {}'", "echo $(cat {})", "cat <<E\n{}\nE", "eval {}", "{}"):
        command = {"shell": shell, "inputs": {"sources": [{"columns": [{"values": "a\nb\n"}]}]}}
        groups = [{"command": command, "completions": 2}]
        spec = {"name": "x", "groups": groups, "workdir": str(team.served.work)}
        said = team.ask("POST", "jobs", {"spec": spec}, token=token)
        assert said.status in (400, 422), said.body
        assert ("yard run FILE" if shell in ("eval {}", "{}") else "YARD_LINE") in said.sentence
        column = {"columns": [{"values": "a\nb\n", "name": "x"}]}
        of_column = {"shell": shell.replace("{}", "{x/.}"), "inputs": {"sources": [column]}}
        again = {**spec, "groups": [{"command": of_column, "completions": 2}]}
        said = team.ask("POST", "jobs", {"spec": again}, token=token)
        assert said.status in (400, 422), said.body
        assert "{x/.}" in said.sentence


def test_every_verb_shows_a_name_from_rest_harmless(make_yard: MakeYard) -> None:
    yard = make_yard()
    yard.ok("ls")
    group = GroupSpec(Command(shell=f"true {EVIL!r}; : '{EVIL}'"), name="")
    job = yard.client.submit(
        JobSpec("plain", (group,), env={"A": EVIL}, workdir=str(yard.work)).with_notes(EVIL),
    )
    yard.ok("wait", job.id)
    for words in (["ls"], ["show", job.id, "--tasks"], ["why", job.id], ["cancel", job.id], ["wait", job.id]):
        done = yard.ok(*words)
        assert_harmless(done.out)
        assert_harmless(done.err)
    assert yard.json("show", job.id)["command"].endswith(f"'{EVIL}'")


def test_digits_mean_a_number_and_cancel_hits_no_other_job(make_yard: MakeYard) -> None:
    yard = make_yard()
    jobs = [yard.submit("--", "sleep 1000") for _ in range(3)]
    for job in jobs:  # the digits that an id begins with are no way to it
        digits = job[: next(index for index, char in enumerate(job) if not char.isdigit())]
        if digits and (digits.startswith("0") or int(digits) > len(jobs)):
            assert yard.run("cancel", digits).code == 2
    assert yard.run("cancel", "059").code == 2
    assert "CANCELLED" not in {yard.job(job)["state"] for job in jobs}
    yard.ok("cancel", "--force", "2")
    yard.wait_state(jobs[1], "CANCELLED")
    assert "CANCELLED" not in {yard.job(jobs[0])["state"], yard.job(jobs[2])["state"]}
    again = yard.ok("cancel", "2")
    assert "had ended before (cancelled): nothing was cancelled" in again.out
    assert [(each["number"], each["id"]) for each in yard.json("ls")] == [(3, jobs[2]), (2, jobs[1]), (1, jobs[0])]
    yard.ok("cancel", "--force", "--all")


def test_a_machine_cannot_be_an_option_of_ssh(yard: TemporaryYard) -> None:
    for target in ("-oProxyCommand=touch${IFS}bad", "ben@-oProxyCommand=touch", "--", "-F/tmp/x"):
        assert yard.run("nodes", "add", "--force", "--name", "evil", "--", target).code == 2, target
    assert not (yard.work / "bad").exists()
    assert "evil" not in [node["id"] for node in yard.json("nodes")]


def test_a_machine_over_rest_cannot_be_an_option_of_ssh(team: TeamServer) -> None:
    until(team.served.socket.exists)
    for config in ({"host": "-oProxyCommand=touch bad"}, {"host": "h", "user": "-oProxyCommand=x"}):
        said = team.ask_socket("POST", "nodes", {"config": {"id": "evil", **config}, "force": True})
        assert said.status in (400, 422), said.body
    assert "evil" not in [node["id"] for node in team.served.json("nodes")]
