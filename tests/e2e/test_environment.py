"""A task finds what DESIGN 7 names, and only what fits it."""

from __future__ import annotations

import os
from pathlib import Path

from tests.yards import TemporaryYard

OURS = {"YARD_JOB_ID", "YARD_JOB_NAME", "YARD_GROUP", "YARD_TASK", "YARD_ATTEMPT", "YARD_NODE"}
PATHS = {"YARD_OUTPUT_DIR", "YARD_CHECKPOINT_DIR", "YARD_SPOOL", "YARD_STOP_FILE", "YARD_ERROR_FILE"}
REPORT_ENDPOINT = {"YARD_REPORT_ADDRESS", "KUBEFLOW_TRAINER_SERVER_URL", "KUBEFLOW_TRAINER_SERVER_TOKEN"}
ARRAY = {
    *{"SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID", "SLURM_RESTART_COUNT"},
    *{"SLURM_ARRAY_TASK_COUNT", "SLURM_ARRAY_TASK_MIN", "SLURM_ARRAY_TASK_MAX"},
}
GROUP = {
    *{"JOB_INDEX", "JOB_GLOBAL_INDEX", "JOB_COMPLETION_INDEX"},
    *{"GLOBAL_REPLICAS", "REPLICATED_JOB_NAME", "REPLICATED_JOB_REPLICAS"},
}
GANG = {
    *{"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT"},
    *{"PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT"},
}
ALWAYS = {*OURS, *PATHS, *REPORT_ENDPOINT, "TMPDIR", "CUDA_VISIBLE_DEVICES", "YARD_SLOT"}
SHELLS_OWN = {"PWD", "OLDPWD", "SHLVL", "_"}


def variables(yard: TemporaryYard, *words: str) -> dict[str, str]:
    text = yard.ok("logs", "last", "--raw", *words).stdout
    return dict(entry.split("=", 1) for entry in text.decode().split("\0") if entry)


def added(yard: TemporaryYard, found: dict[str, str]) -> set[str]:
    return {name for name in found if name not in yard.env and name not in SHELLS_OWN}


def test_a_plain_task_has_ours_and_nothing_of_arrays_groups_or_training(yard: TemporaryYard) -> None:
    yard.ok("run", "-n", "plain", "--", "env", "-0")
    found = variables(yard)
    assert added(yard, found) == ALWAYS
    job = yard.job()
    expected = {
        "YARD_JOB_ID": job["id"],
        "YARD_JOB_NAME": "plain",
        "YARD_GROUP": "",
        "YARD_TASK": "0",
        "YARD_ATTEMPT": "1",
        "YARD_NODE": os.uname().nodename.split(".")[0],
        "CUDA_VISIBLE_DEVICES": "",
        "PWD": str(yard.work),
    }
    assert {name: found[name] for name in expected} == expected


def test_an_array_task_has_slurms_names(yard: TemporaryYard) -> None:
    yard.ok("run", "-a", "4-6", "--cpus", "0.1", "--", "env", "-0")
    found = variables(yard, "--task", "5")
    assert added(yard, found) == ALWAYS | ARRAY
    assert found["SLURM_ARRAY_TASK_ID"] == found["YARD_TASK"] == "5"


def test_a_task_of_a_group_has_jobsets_names(yard: TemporaryYard) -> None:
    text = "command: env -0\nresources: {cpus: 0.1}\ngroups: {w: {count: 2}}\n"
    yard.ok("run", yard.write("groups.yaml", text))
    found = variables(yard, "--task", "w/1")
    assert added(yard, found) == ALWAYS | GROUP
    assert (found["YARD_GROUP"], found["YARD_TASK"], found["JOB_INDEX"]) == ("w", "w/1", "1")


def test_only_a_gang_has_ranks(yard: TemporaryYard) -> None:
    text = "command: env -0\ngang: true\nresources: {cpus: 0.1}\ngroups: {w: {count: 2}}\n"
    yard.ok("run", yard.write("gang.yaml", text))
    found = variables(yard, "--task", "w/1")
    assert added(yard, found) == ALWAYS | GROUP | GANG
    assert (found["RANK"], found["WORLD_SIZE"]) == ("1", "2")


def test_the_paths_can_be_used_and_what_is_empty_goes_away(yard: TemporaryYard) -> None:
    line = (
        'echo x > "$TMPDIR/x" && echo y > "$YARD_OUTPUT_DIR/y" && echo z > "$YARD_CHECKPOINT_DIR/z"'
        ' && echo "out of luck" > "$YARD_ERROR_FILE"; echo "$TMPDIR"; echo "$YARD_OUTPUT_DIR"; exit 3'
    )
    done = yard.run("run", "--", line)
    tmp, output = map(Path, done.out.splitlines())
    assert not tmp.exists()
    assert (output / "y").read_text() == "y\n"
    assert yard.job()["message"].endswith("out of luck")


def test_the_checkpoint_directory_is_the_same_in_every_attempt(yard: TemporaryYard) -> None:
    line = 'cd "$YARD_CHECKPOINT_DIR"; echo x >> steps; [ $(wc -l < steps) = 2 ] && echo resumed'
    assert yard.ok("run", "--retries", "1", "--", line).out.endswith("resumed\n")


def test_a_job_submitted_by_a_task_is_a_job_of_its_own(yard: TemporaryYard) -> None:
    inner = " ".join(yard.command("run", "-q", "--cpus", "0.1", "--", "env", "-0"))
    done = yard.ok("run", "-a", "0", "--cpus", "0.1", "-e", "KEPT=1", "--", f"{inner}")
    found = variables(yard)
    assert found["YARD_JOB_ID"] == yard.job(done.out.strip())["id"]
    assert found["KEPT"] == "1"
    assert not ARRAY & set(found)
