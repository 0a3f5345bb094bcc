"""Bad input gets one sentence that names the way out, exit code 2, and leaves nothing behind."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.conftest import MakeYard
from tests.yards import AS_ANYBODY, TemporaryYard

FILES = {
    "empty.txt": b"# only a comment\n\n",
    "binary.bin": b"\x7fELF\x00\x01\x02",
    "latin.txt": b"echo \xe4\n",
    "bad.yaml": b"command: echo\nenv: [unclosed\n",
    "unknown.yaml": b"command: echo\nretrys: 3\n",
    "nocommand.yaml": b"name: x\n",
    "empty.yaml": b"",
    "aichor.yaml": b"kind: AIchorManifest\napiVersion: 0.2.1\nbuilder: {}\nspec:\n  operator: ray\n  image: i\n"
    b"  command: x\n  types: {Head: {count: 1, resources: {cpus: 1, ramRatio: 2}}}\n",
}


@pytest.fixture
def bad_files(yard: TemporaryYard) -> None:
    for name, content in FILES.items():
        yard.write(name, content)


BAD: list[tuple[Sequence[str], Sequence[str]]] = [
    (["run", "no-such-file"], ["no-such-file", "yard run -- no-such-file"]),
    (["run"], ["nothing to run", "yard run -- CMD"]),
    (["run", "--"], ["nothing to run"]),
    (["run", "empty.txt"], ["empty.txt", "no commands"]),
    (["run", "binary.bin"], ["binary.bin", "binary", "yard run -- ./binary.bin"]),
    (["run", "latin.txt"], ["UTF-8", "line 1"]),
    (["run", "bad.yaml"], ["bad.yaml", "line 3", "column"]),
    (["run", "unknown.yaml"], ["retrys", "retries", "line 2"]),
    (["run", "nocommand.yaml"], ["command"]),
    (["run", "empty.yaml"], ["empty"]),
    (["run", "aichor.yaml"], ["ray"]),
    (["run", "."], ["directory"]),
    (["run", "a.txt", "b.txt"], ["no file 'a.txt'", "yard run -- a.txt b.txt"]),
    (["run", "--cpus", "1000", "--", "true"], ["1000 cpus", "largest node", "cpus"]),
    (["run", "--mem", "900TiB", "--", "true"], ["largest node", "memory"]),
    (["run", "--gpus", "3", "--", "true"], ["3 GPUs", "no GPU"]),
    (["run", "--on", "mars", "--", "true"], ["mars", "known"]),
    (["run", "--after", "nothing", "--", "true"], ["--after", "nothing", "yard ls"]),
    (["run", "--after", "afterwards:x", "--", "true"], ["afterwards", "afterok"]),
    (["run", "-a", "9-0", "--", "true"], ["9-0"]),
    (["run", "-a", "", "--", "true"], ["--array"]),
    (["run", "-a", "0-5%0", "--", "true"], ["%0"]),
    (["run", "-a", "x", "--", "true"], ["'x'"]),
    (["run", "--each-line", "nowhere", "--", "echo"], ["nowhere"]),
    (["run", "--workdir", "nowhere", "--", "true"], ["--workdir", "nowhere"]),
    (["run", "--cpus", "many", "--", "true"], ["--cpus", "many"]),
    (["run", "--cpus", "-1", "--", "true"], ["--cpus"]),
    (["run", "--mem", "lots", "--", "true"], ["--mem", "lots"]),
    (["run", "--gpus", "x", "--", "true"], ["--gpus"]),
    (["run", "--gpus", "-1", "--", "true"], ["--gpus"]),
    (["run", "--timeout", "soon", "--", "true"], ["--timeout", "soon"]),
    (["run", "--priority", "high", "--", "true"], ["--priority"]),
    (["run", "--retries", "-1", "--", "true"], ["--retries"]),
    (["run", "--max-fails", "-1", "--", "true"], ["--max-fails"]),
    (["run", "--env", "1A=b", "--", "true"], ["1A"]),
    (["run", "--env", "NOT_SET_ANYWHERE", "--", "true"], ["NOT_SET_ANYWHERE"]),
    (["run", "--env", "YARD_JOB_ID=x", "--", "true"], ["YARD_JOB_ID"]),
    (["run", "--name", "a/b", "--", "true"], ["--name"]),
    (["run", "--no-such-flag", "--", "true"], ["--no-such-flag"]),
    (["run", "-o", "xml", "--", "true"], ["xml", "json"]),
    (["rum", "--", "true"], ["rum", "yard run"]),
    (["show", "no-such-job"], ["no-such-job"]),
    (["show"], ["JOB"]),
    (["logs", "no-such-job"], ["no-such-job"]),
    (["cancel", "no-such-job"], ["no-such-job"]),
    (["wait", "no-such-job"], ["no-such-job"]),
    (["retry", "no-such-job"], ["no-such-job"]),
    (["why", "no-such-job"], ["no-such-job"]),
    (["ls", "--state", "happy"], ["happy"]),
    (["ls", "--limit", "0"], ["--limit"]),
    (["serve", "--listen", "nonsense"], ["nonsense", "HOST:PORT"]),
    (["token", "revoke", "nothing"], ["nothing"]),
    (["token", "create", ""], ["name"]),
    (["server", "restrat"], ["restrat"]),
]


@pytest.mark.usefixtures("bad_files")
@pytest.mark.parametrize(("words", "named"), BAD, ids=[" ".join(words) for words, _ in BAD])
def test_bad_input_gets_one_sentence(yard: TemporaryYard, words: Sequence[str], named: Sequence[str]) -> None:
    if not yard.socket.exists():
        yard.ok("server", "start")
    before = [job.id for job in yard.client.jobs(all=True, limit=10_000)]
    done = yard.run(*words)
    assert (done.code, done.out) == (2, ""), done.err
    _is_one_sentence(done.err)
    for word in named:
        assert word in done.err
    assert [job.id for job in yard.client.jobs(all=True, limit=10_000)] == before


def _is_one_sentence(text: str) -> None:
    assert text.startswith("yard: ")
    assert text.count("\n") == 1
    assert text.endswith("\n")
    assert "Traceback" not in text


def test_a_directory_that_may_not_be_entered_is_refused(make_yard: MakeYard) -> None:
    yard = make_yard(prefix=AS_ANYBODY)
    closed = yard.work / "closed"
    closed.mkdir(mode=0)
    done = yard.run("run", "--workdir", str(closed), "--", "true")
    assert done.code == 2
    _is_one_sentence(done.err)
    assert str(closed) in done.err
    secret = yard.work / yard.write("secret.txt", "true\n")
    secret.chmod(0)
    done = yard.run("run", "secret.txt")
    assert done.code == 2
    _is_one_sentence(done.err)
    assert "secret.txt" in done.err


def test_a_yard_that_cannot_be_written_is_said_in_one_sentence(make_yard: MakeYard) -> None:
    yard = make_yard(prefix=AS_ANYBODY)
    yard.directory.chmod(0o500)
    done = yard.run("run", "--", "true")
    assert done.code == 2
    _is_one_sentence(done.err)
    assert str(yard.directory) in done.err
    assert "--yard" in done.err
    assert list(yard.directory.iterdir()) == []
    doctor = yard.run("doctor")
    assert doctor.code in (1, 3)
    assert "cannot be written" in doctor.out


def test_a_yard_that_is_a_file_is_said_in_one_sentence(make_yard: MakeYard) -> None:
    yard = make_yard()
    yard.directory.rmdir()
    yard.directory.write_text("")
    done = yard.run("ls")
    assert done.code == 2
    _is_one_sentence(done.err)


def test_a_database_that_is_none_is_said_in_one_sentence(make_yard: MakeYard) -> None:
    yard = make_yard()
    (yard.directory / "yard.db").write_bytes(b"this is not a database" * 100)
    done = yard.run("ls")
    assert done.code == 2
    _is_one_sentence(done.err)
    assert "yard.db" in done.err


@pytest.mark.slow
def test_a_full_disk_is_said_and_nothing_stays_behind(make_yard: MakeYard) -> None:
    # A limit on the size of files is met as a full disk is: a write fails half way.
    yard = make_yard(prefix=["prlimit", f"--fsize={400_000}"])
    yard.ok("run", "--", "true")
    big = yard.write("big.txt", "".join(f"echo {'x' * 1000} {number}\n" for number in range(1000)))
    done = yard.run("run", big)
    assert done.code == 2, done.err
    _is_one_sentence(done.err)
    assert "disk" in done.err
    assert len(yard.json("ls", "-a")) == 1
    yard.ok("run", "--", "true")  # and it goes on with what fits


def test_no_job_is_left_when_the_directory_has_vanished(yard: TemporaryYard) -> None:
    gone = Path(yard.work / "gone")
    gone.mkdir()
    done = yard.run("run", "--workdir", "gone", "--", "rmdir ../gone; pwd > /dev/null")
    assert done.code == 0
    done = yard.run("run", "--workdir", "gone", "--", "true")
    assert done.code == 2


def test_a_job_that_cannot_be_launched_is_said_to_have_failed_once(yard: TemporaryYard) -> None:
    done = yard.run("run", "--workers", "1", "--epochs", "1", "-e", "MASTER_PORT=abc", "--", "true")
    assert done.code == 1
    assert "(true) failed (Refused) after " in done.err
