"""Commands of README and of every guide: does each run as it stands, and print what the page says?

Each page has a yard and a directory of its own, with the files that it shows and those of `beside/`. A command that
cannot run here has a note in the page that says why; `pytest -rP tests/guides/test_commands.py` lists them.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import MakeYard
from tests.guides.pages import Command, Page, all_pages, pattern
from tests.guides.shells import BESIDE, Shell
from tests.hosts import Hosts
from tests.hosts.host import Host
from tests.marks import long
from tests.yards import ROOT

pytestmark = pytest.mark.slow
NEEDS_HOSTS = {"README.md", "docs/guide/arrays.md", "docs/guide/code-and-results.md", "docs/guide/machines.md"}
LONG = [page for page in all_pages() if page.name == "examples/README.md"]
SHORT = [page for page in all_pages() if page not in LONG]
# On a terminal: what is waited for, and which keys are pressed then.
TYPED = {"yard top": ("jobs", b"q")}
LAB = """
Host {name}.lab
    HostKeyAlias {address}
    UserKnownHostsFile {known_hosts}
    IdentityFile {key}
    IdentitiesOnly yes
    ProxyCommand ssh -F {config} -W {address}:{port} {name}
"""


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    """gpu1, gpu2 and gpu3 with two fake GPUs each; gpu2.lab too is the second, and gpu3.lab lets nobody in."""
    gpus = {"JOBYARD_FAKE_GPUS": "2x24GiB"}
    with Hosts(3, kind="namespaces", user="ben", environment=gpus) as made:
        for host in made:
            host.replace_command("python", '#!/bin/sh\nexec python3 "$@"\n')
        made.config_file.write_text(
            made.config_file.read_text() + lab(made["gpu2"]) + lab(made["gpu3"], key="/dev/null")
        )
        yield made


def lab(host: Host, key: str = "") -> str:
    return LAB.format(
        name=host.name,
        address=host.address,
        port=host.port,
        known_hosts=host.known_hosts,
        key=key or host.key,
        config=host.config_file,
    )


def prepared(page: Page, make_yard: MakeYard, request: pytest.FixtureRequest) -> Shell:
    variables = {"JOBYARD_FAKE_GPUS": "8x24GiB"}
    if page.name in NEEDS_HOSTS:
        hosts: Hosts = request.getfixturevalue("hosts")
        variables["YARD_SSH_CONFIG"] = str(hosts.config_file)
    shell = Shell(make_yard(**variables))
    for directory in (BESIDE / "common", BESIDE / page.path.stem):
        if directory.is_dir():
            shutil.copytree(directory, shell.yard.work, dirs_exist_ok=True)
    shutil.copytree(ROOT / "examples", shell.yard.work / "examples")
    for name, text in page.files():
        shell.yard.write(name, text)
    return shell


def run(shell: Shell, command: Command) -> tuple[int, str]:
    for beginning, (seen, keys) in TYPED.items():
        if command.text.startswith(beginning):
            return shell.type(command.text, seen, keys)
    return shell.run(command.text)


@pytest.mark.parametrize("page", [*SHORT, *long(*LONG)], ids=lambda page: page.name)
def test_every_command_of_a_page_runs_and_prints_what_the_page_says(
    page: Page, make_yard: MakeYard, request: pytest.FixtureRequest
) -> None:
    commands = []
    for command in page.commands():
        if reason := command.note("not run"):
            print(f"not run: {page.name}:{command.line}: {command.text}: {reason}")
        else:
            commands.append(command)
    if commands:
        shell = prepared(page, make_yard, request)
        try:
            check(shell, page, commands)
        finally:
            shell.yard.settle()  # its tasks on the hosts would hold them up for the next page


def check(shell: Shell, page: Page, commands: list[Command]) -> None:
    done: set[str] = set()
    for command in commands:
        where = f"{page.name}:{command.line}: {command.text}"
        for before in command.every("before"):
            if before not in done:
                done.add(before)
                code, said = shell.run(before)
                assert code == 0, f"{where}\nnot even before it:\n{said}"
        code, said = run(shell, command)
        assert code == int(command.note("exits") or 0), f"{where}\nended with {code}:\n{said}"
        if command.shown and not command.note("not compared"):
            assert re.search(pattern(command.shown), said), f"{where}\nprinted\n{said}\nand not\n{command.shown}"


def test_what_is_not_run_says_which_test_does_or_what_it_needs() -> None:
    reasons = {command.note("not run") for page in all_pages() for command in page.commands()} - {""}
    named = {path for reason in reasons for path in re.findall(r"tests/[\w/.]+", reason)}
    assert not [path for path in named if not Path(ROOT, path).exists()]
    assert not [reason for reason in reasons if not re.search(r"^needs |tests/", reason)]
