"""Pages for language models, llms.txt and SKILL.md: is everything there that they name?"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest
import yaml

from jobyard.cli.group import yard
from tests.guides.pages import Page, all_pages
from tests.yards import ROOT

MAP = ROOT / "llms.txt"
SKILL = ROOT / "docs/skills/jobyard/SKILL.md"
NOT_A_GUIDE = {"README.md"}


def named_commands(path: Path) -> set[str]:
    """What stands in backquotes or after a prompt, without comments; of a pipe the first part."""
    text = path.read_text()
    prompts = {command.text for command in Page(path).commands()}
    quoted = set(re.findall(r"`(yard [^`]+)`", text))
    return {re.split(r"\s#\s|\s\|\s", each)[0] for each in prompts | quoted}


@pytest.mark.parametrize("path", [MAP, SKILL], ids=lambda path: path.name)
def test_verbs_and_flags_that_are_named_exist(path: Path) -> None:
    commands = named_commands(path)
    assert len(commands) > 5
    for command in commands:
        _, verb, *words = shlex.split(command.partition(" -- ")[0])
        with click.Context(yard) as context:
            found = yard.get_command(context, verb)
        assert found is not None, command
        known = {flag for parameter in found.params for flag in (*parameter.opts, *parameter.secondary_opts)}
        assert {word for word in words if re.match("-+[a-z]", word)} <= known | {"-o", "-q"}, command


def test_every_link_of_the_map_leads_to_a_page_and_every_guide_has_one() -> None:
    linked = set(re.findall(r"\]\(([^)]+)\)", MAP.read_text()))
    assert not [path for path in linked if not (ROOT / path).is_file()]
    guides = {f"docs/guide/{path.name}" for path in (ROOT / "docs/guide").glob("*.md") if path.name not in NOT_A_GUIDE}
    assert guides <= linked


def test_the_skill_has_the_head_that_agents_look_for_and_its_commands_are_run() -> None:
    _, head, _ = SKILL.read_text().split("---\n", 2)
    assert set(yaml.safe_load(head)) == {"name", "description"}
    assert yaml.safe_load(head)["name"] == SKILL.parent.name
    assert Page(SKILL) in all_pages()


@pytest.mark.parametrize("path", [MAP, SKILL], ids=lambda path: path.name)
def test_exit_codes_are_those_of_the_quickstart(path: Path) -> None:
    known = re.findall(r"`(\d+)` ", (ROOT / "docs/guide/quickstart.md").read_text().partition("## Exit codes")[2])
    assert known == ["0", "1", "2", "3", "130"]
    text = path.read_text()
    assert all(re.search(rf"(\| |codes: |, ){code} ", text) for code in known)
