from __future__ import annotations

import pytest

from jobyard.compat.ml_scheduler.flags import Copies, Need, parse_batch, parse_remote
from jobyard.errors import UserError


def test_the_defaults_of_execute_batch_are_the_seeds() -> None:
    flags = parse_batch(["example/batch_script.sh", "--machines", "m1.yaml", "m2.yaml"])
    assert flags.filename == "example/batch_script.sh"
    assert flags.machines == ("m1.yaml", "m2.yaml")
    assert flags.copies == Copies(("./",), ("./",))
    assert flags.need == Need(cpus=1, memory_mib=6676, gpu_memory_mib=954, gpu_percent=75)
    assert (flags.is_verbose, flags.is_dry_run, flags.is_kabuki) == (False, False, False)


def test_every_flag_of_execute_batch_is_read() -> None:
    words = "--num-cpus 8 --memory-required=10000 --gpu-memory-required 3000 --gpu-utilization=0.5 --reserve"
    words += " --no-reserve-gpu --no-gpu-required --verbose --dry-run --job-name x --kabuki-commands"
    words += " --copy-forward src data --copy-backwards out --machines m"
    flags = parse_batch(["jobs.sh", *words.split()])
    assert flags.copies == Copies(("src", "data"), ("out",))
    assert flags.need == Need(8, 9537, 2862, 50, is_gpu_required=False, reserves_gpu=False, reserves_machine=True)
    assert flags.is_verbose
    assert flags.is_dry_run
    assert flags.is_kabuki


def test_lists_are_greedy_so_the_file_comes_first_or_after_another_flag() -> None:
    assert parse_batch(["--machines", "a", "b", "--verbose", "jobs.sh"]).filename == "jobs.sh"
    with pytest.raises(UserError, match=r"filename; see `execute_batch --help`"):
        parse_batch(["--machines", "a", "jobs.sh"])


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["jobs.sh"], "--machines"),
        (["jobs.sh", "--machines"], "name at least one machine"),
        (["jobs.sh", "--machines", "m", "--num-cpus", "-1"], "num-cpus"),
        (["jobs.sh", "--machines", "m", "--num-cpus", "1.5"], "invalid whole number value: '1.5'"),
        (["jobs.sh", "--machines", "m", "--memory-required", "7GB"], "memory-required"),
        (["jobs.sh", "--machines", "m", "--gpu-utilization", "-0.1"], "gpu-utilization"),
        (["jobs.sh", "--machines", "m", "--gpu-utilization", "nan"], "gpu-utilization"),
        (["jobs.sh", "--machines", "m", "--nonsense"], "nonsense"),
    ],
)
def test_a_bad_flag_gets_a_sentence(words: list[str], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        parse_batch(words)


def test_the_defaults_of_execute_remote_copy_nothing() -> None:
    flags = parse_remote(["echo hi", "--machine", "m1.yaml"])
    assert (flags.command, flags.machine) == ("echo hi", "m1.yaml")
    assert flags.copies == Copies((), ())
    assert flags.job_name == "__random__"


def test_execute_remote_takes_lists_and_a_name() -> None:
    words = ["--machine", "m", "--copy-forward", "a", "b", "--copy-backwards", "c", "--job-name", "one", "echo hi"]
    flags = parse_remote(words)
    assert flags.copies == Copies(("a", "b"), ("c",))
    assert flags.job_name == "one"
    assert flags.given == {"copy_forward", "copy_backwards"}


@pytest.mark.parametrize("name", ["../up", "a/b", "", ".", "new\nline"])
def test_a_job_name_must_be_able_to_name_a_directory(name: str) -> None:
    with pytest.raises(UserError, match="--job-name"):
        parse_remote(["true", "--machine", "m", "--job-name", name])
