"""The submitting shell's environment reaches the task; it is in one private file, and not in the journal."""

from __future__ import annotations

import stat
from pathlib import Path

from tests.conftest import MakeYard
from tests.yards import TemporaryYard

SHELL = {"SHELL_SECRET": "s3cret-of-the-shell", "YARD_TOKEN": "s3cret-token"}


def files_with(yard: TemporaryYard, secret: str) -> list[Path]:
    found = [path for path in yard.directory.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]
    return [path.relative_to(yard.directory) for path in found]


def test_the_environment_is_in_no_journal_and_the_task_has_it(make_yard: MakeYard) -> None:
    yard = make_yard()
    yard.ok("run", "--", "bash", "-c", 'test ${#SHELL_SECRET} = 19 -a -z "$YARD_TOKEN"', env=SHELL)
    yard.ok("server", "stop")  # writes a snapshot as well
    (file,) = files_with(yard, "s3cret-of-the-shell")
    assert file.parent == Path("environments")
    assert stat.S_IMODE((yard.directory / file).stat().st_mode) == 0o600
    assert stat.S_IMODE((yard.directory / file).parent.stat().st_mode) == 0o700
    assert files_with(yard, "s3cret-token") == []


def test_a_job_that_waits_has_it_after_a_restart_and_so_has_a_retry(make_yard: MakeYard) -> None:
    yard = make_yard()
    line = 'echo "$SHELL_SECRET"; until test -e go; do sleep 0.01; done; test -e good'
    first = yard.submit("--", "bash", "-c", line, env=SHELL)
    waiting = yard.submit("--after", f"afterany:{first}", "--", "bash", "-c", line, env=SHELL)
    yard.wait_state(first, "RUNNING")
    yard.ok("server", "stop", "--force")
    yard.write("go", "")
    yard.run("wait", waiting)
    assert yard.logs(waiting) == "s3cret-of-the-shell\n"
    yard.ok("server", "stop")
    yard.write("good", "")
    yard.ok("retry", waiting)
    yard.ok("wait", waiting)
    assert yard.logs(waiting) == "s3cret-of-the-shell\n"


def test_a_retry_after_its_time_is_refused_in_one_sentence(make_yard: MakeYard) -> None:
    yard = make_yard(YARD_ENVIRONMENT_SECONDS="0")
    yard.run("run", "--", "false", env=SHELL)
    yard.ok("server", "stop")
    refused = yard.run("retry", "last")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "submit it again" in refused.err
    assert files_with(yard, "s3cret-of-the-shell") == []
