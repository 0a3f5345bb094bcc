"""Guide pages: are commands, what they print, and what is said about them read as they stand?"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.guides.pages import Note, Page, all_pages, pattern

TEXT = """\
# A page

<!-- file: job.yaml -->
```yaml
command: "true"
```

<!-- not run: `kubectl`: needs a cluster -->
<!-- exits: `yard run`: 1 -->
```console
$ yard run job.yaml \\
    --cpus 1   # a comment
yard: job 3f9a21c7 failed
$ kubectl get pods
```

```bash
# list.txt: two lines
true
```
"""


@pytest.fixture
def page(tmp_path: Path) -> Page:
    path = tmp_path / "page.md"
    path.write_text(TEXT)
    return Page(path)


def test_commands_have_their_line_their_output_and_the_notes_that_concern_them(page: Page) -> None:
    run, kubectl = page.commands()
    assert (run.line, run.text.split()[:3]) == (11, ["yard", "run", "job.yaml"])
    assert run.text.endswith("--cpus 1   # a comment")
    assert run.shown == "yard: job 3f9a21c7 failed"
    assert (run.note("exits"), run.note("not run")) == ("1", "")
    assert (kubectl.line, kubectl.note("not run"), kubectl.shown) == (14, "needs a cluster", "")


def test_files_are_named_by_a_note_or_by_their_first_line(page: Page) -> None:
    assert dict(page.files()) == {"job.yaml": 'command: "true"\n', "list.txt": "# list.txt: two lines\ntrue\n"}


def test_a_note_about_a_command_that_is_gone_is_found(page: Page) -> None:
    assert page.idle_notes() == []
    page.path.write_text(TEXT.replace("$ kubectl", "$ helm"))
    assert page.idle_notes() == [Note("not run", "kubectl", "needs a cluster")]


@pytest.mark.parametrize(
    ("shown", "said"),
    [
        ("7  7.err  7.out", "12\n12.err\n12.out\n"),
        ("4c99a350  4c99a350.err", "801d8f55\n801d8f55.err\n"),
        ("23.5 GiB", "252 GiB"),
        ("a\n...\nb c", "a\nanything\nat all\nb c\n"),
        ("job 3f9a21c7 in 12m04s", "job 00ffee11 in 0m01s"),
        ("epoch 1 ...", "epoch 1 loss 0.3"),
    ],
)
def test_output_is_compared_without_its_numbers_and_ids(shown: str, said: str) -> None:
    assert re.search(pattern(shown), said)
    assert not re.search(pattern(shown), "something else")


@pytest.mark.parametrize("page", all_pages(), ids=lambda page: page.name)
def test_every_note_of_a_page_concerns_a_command(page: Page) -> None:
    assert page.idle_notes() == []
