"""Help sections: which flags of `run` and `submit` does their help show first, and which under `--help-all`?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import click

from jobyard.cli.output.text import echo_text

_IS_ALL = "jobyard.help_all"
SENTENCE_MOST = 200  # characters
_COLUMN_MOST = 26  # of the flags, so that in 60 columns there is room for words beside them
Section = tuple[str, str]  # its title, and the names of its flags
FIRST: tuple[Section, ...] = (
    ("The flags you need first", "cpus mem gpus array timeout"),
    ("Many tasks", "each_line sweep workers limit retries max_fails halt"),
    ("When and where", "name env workdir on after priority"),
    ("Output", "is_cat joblog results output error quiet output_format"),
    ("Instead", "dry_run detach help help_all"),
)
FURTHER: tuple[Section, ...] = (
    ("More of these", "name_prefix stdin is_list delay retry_delay has_bar keep verbose render pass_exit_code yard"),
    ("Values of tasks", "each_json colsep header nul values_per_task skip_existing resume"),
    ("More about room", "mem_limit gpu_mem gpu_util min_gpu_mem whole_node"),
    ("Containers and Kubernetes", "image container kind volume mount_secret"),
    ("Code and results on other machines", "copy_forward copy_backwards no_copy"),
    ("Training", "epochs batch_size training_set_size estimate preemptible checkpoint_deadline log_dir idle_gpu"),
    (
        "Image builds",
        "is_built builder registry pull_registry dockerfile context target build_arg allow_dirty allow_unpushed "
        "rebuild",
    ),
)
OTHERS = "Others"  # flags that no section names


class VerbGroup(click.Group):
    """Verbs below a verb, as `nodes add`: the first sentence of each stands in the help, whole."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl([(name, each.get_short_help_str(SENTENCE_MOST)) for name, each in self.commands.items()])


def help_all(function: Callable[..., Any]) -> Callable[..., Any]:
    """The option that shows every flag."""
    return click.option(
        "--help-all", is_flag=True, is_eager=True, expose_value=False, callback=_show_all, help="Show every flag."
    )(function)


def _show_all(ctx: click.Context, _: click.Parameter, is_asked: bool) -> None:
    if is_asked and not ctx.resilient_parsing:
        ctx.meta[_IS_ALL] = True
        echo_text(f"{ctx.get_help()}\n")
        ctx.exit()


def write_sections(ctx: click.Context, parameters: Iterable[click.Parameter], formatter: click.HelpFormatter) -> None:
    options = [each for each in parameters if isinstance(each, click.Option)]
    records = {_name(each): record for each in options if (record := each.get_help_record(ctx)) is not None}
    sections = [*FIRST, *FURTHER] if ctx.meta.get(_IS_ALL) else FIRST
    for title, names in sections:
        _write(title, [records.pop(name) for name in names.split() if name in records], formatter)
    if ctx.meta.get(_IS_ALL):
        _write(OTHERS, list(records.values()), formatter)


def _name(option: click.Option) -> str:
    return "help" if "--help" in option.opts else option.name or ""


def _write(title: str, rows: Sequence[tuple[str, str]], formatter: click.HelpFormatter) -> None:
    if rows:
        with formatter.section(title):
            formatter.write_dl(rows, col_max=_COLUMN_MOST)
