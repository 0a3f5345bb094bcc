"""What an image was built from is kept with the job, through the wire, the journal and back."""

from __future__ import annotations

from jobyard.model.source import GitState
from tests.builders import with_words
from tests.unit.client.views import a_spec
from tests.yards import TemporaryYard

PATCH = b"diff --git a/x b/x\n+caf\xe9 in Latin-1, \xc3\xa9 in UTF-8\n"


def test_the_diff_of_a_job_comes_back_byte_for_byte_also_after_a_restart(own_yard: TemporaryYard) -> None:
    git = GitState("3f" * 20, "main", is_dirty=True, is_pushed=False, diff=PATCH.decode("utf-8", "surrogateescape"))
    own_yard.ok("ls")  # starts the server
    job = own_yard.client.submit(with_words(a_spec(), git=git)).id
    plain = own_yard.client.submit(a_spec()).id
    assert own_yard.ok("show", job, "--diff").stdout == PATCH
    own_yard.ok("server", "stop", "--force")
    assert own_yard.ok("show", job, "--diff").stdout == PATCH
    assert "3f3f3f3f3f3f on main, with changes, not pushed" in own_yard.ok("show", job).out
    assert own_yard.job(job)["git"]["diff"] == "", "lists of jobs do not carry it"
    done = own_yard.run("show", plain, "--diff")
    assert done.code == 2
    assert "has no diff" in done.err
