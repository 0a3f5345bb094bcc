"""Job fields: which flags and manifest keys does a job have? A new one is a line in one of these tables.

A table is a group of fields. Where a flag and a key truly differ, the `Option` says so; a field without a place (`at`)
depends on others, and `overrides.py` and `native.py` work them out together.
"""

from __future__ import annotations

from jobyard.manifests.arrays import parse_array
from jobyard.manifests.declarations import JobField, Option, Table, flags_of
from jobyard.manifests.field_values import (
    CPUS,
    DEPENDENCY,
    DEVICE_SIZE,
    DURATION,
    DURATION_OR_0,
    ENV,
    IDLE_GPU,
    KIND,
    NAMES,
    PATHS,
    POLICIES,
    SHARE,
    SIZE,
    VOLUME,
    as_written,
    gpus_of,
    span_of,
)
from jobyard.manifests.fields import Flag, ListOf, Parsed, TextType, Whole
from jobyard.manifests.input_fields import INPUTS
from jobyard.manifests.kinds import KINDS, parse_kind
from jobyard.manifests.notation import (
    parse_image,
    parse_limit,
    parse_name,
    parse_on,
    parse_prefix,
    parse_switch,
)
from jobyard.manifests.training import parse_log_dir
from jobyard.model.limits import (
    Gpus,
    Priority,
    Retries,
    SomeSteps,
    TaskCount,
    TaskLimit,
    Workers,
)
from jobyard.model.training import IDLE_GPU_SECONDS

JOB: Table = {
    "name": JobField(
        Parsed(parse_name, {"type": "string"}, "a name"),
        "The job's name. Left out: the file's.",
        at="name",
        option=Option("The job's name.", also=("-n",)),
    ),
    "name_prefix": JobField(
        Parsed(parse_prefix, {"type": "string"}, "the beginning of a name"),
        "",
        option=Option("What the job's name begins with.", "PREFIX"),
        is_key=False,
    ),
    "env": JobField(
        ENV,
        "Variables of all tasks; one without a value, as in SEED: null, takes it from the submitting shell.",
        option=Option("A variable; K alone takes it from this shell.", "K=V", also=("-e",), is_repeated=True),
    ),
    "workdir": JobField(
        TextType(),
        "Where the tasks run. Left out: the directory of submission, where a relative path starts.",
        option=Option("Where tasks run; default: here.", "DIR", also=("-w",)),
    ),
    "array": JobField(
        Parsed(as_written(parse_array), {"type": ["string", "integer"]}, "array ids such as 0-99%10"),
        "One task per id: 0-99, 0-99%10 (10 at once), 1-9:2, 1,3,5-7.",
        option=Option("One task for each number: 0-99, 0-99:2, 1,5,9, 0-99%10.", "RANGE", also=("-a",)),
    ),
    "stdin": JobField(
        TextType(),
        "A file that is kept with the job, and that each task reads as its standard input.",
        option=Option("Each task reads FILE as its standard input; -: that of this command.", "FILE|-"),
    ),
    "output": JobField(
        TextType(),
        "The file of each task's output, growing as it runs: logs/%j_%t.out, with %j the job's number, %t (or %a) the"
        " task, %x the job's name, %N the node, %u the user. A relative path starts at the directory of submission.",
        option=Option("Write each task's output to this file as it runs: logs/%j_%t.out (job, task).", "PATTERN"),
    ),
    "error": JobField(
        TextType(),
        "The same for its stderr. Left out: that is in the file of output, in the order in which it came.",
        option=Option("The same for stderr; without it that goes to --output too.", "PATTERN"),
    ),
    "after": JobField(
        ListOf(DEPENDENCY, or_one=True, is_flat=True),
        "Jobs to wait for: ID or afterok:ID (must succeed), afterany:ID (must end).",
        at="after",
        option=Option(
            "Start when JOB has succeeded, or with afterany: has ended.", "[afterok:|afterany:]JOB", is_repeated=True
        ),
    ),
    "on": JobField(
        Parsed(parse_on, {"type": "string", "pattern": NAMES}, "nodes or labels, as in gpu1,gpu2"),
        "Nodes, labels or executors to run on, with commas between. Left out: anywhere.",
        at="on",
        option=Option("Nodes, labels or executors to choose from.", "WHERE,..."),
    ),
    "gang": JobField(Flag(), "All tasks start and stop together.", False, at="gang"),
    "workers": JobField(
        span_of(Workers),
        "The job as a gang of so many tasks; or a range, as in 1..4, for training that can be resized.",
        option=Option("So many tasks that start and stop together; a range likewise.", "N|A..B"),
    ),
}

POLICY: Table = {
    "priority": JobField(
        Whole.within(Priority),
        "Higher goes first.",
        0,
        at="policy.priority",
        option=Option("Higher goes first; default 0.", "N", also=("-p",)),
    ),
    "timeout": JobField(
        DURATION,
        "How long each attempt at a task may take: 90s, 1h30m, 2-12:00:00; a number is seconds.",
        at="policy.timeout_seconds",
        option=Option("Of each attempt: 90s, 1h30m, 2-12:00:00; a bare number is seconds.", "TIME", also=("-t",)),
    ),
    "deadline": JobField(
        DURATION, "How long the whole job may take from its first start.", at="policy.deadline_seconds"
    ),
    "grace": JobField(
        DURATION_OR_0,
        "Time between SIGTERM and SIGKILL.",
        10,
        at="policy.grace_seconds",
    ),
    "retries": JobField(
        Whole.within(Retries),
        "How often a failed task is tried again.",
        0,
        at="policy.retries",
        option=Option("Further attempts at a task that fails.", "N"),
    ),
    "retry_delay": JobField(
        DURATION_OR_0,
        "How long a failed task waits for its next attempt; twice as long each time, up to 5m. 0: not at all."
        " Left out: not the first time, then 1s, 2s, 4s and so on.",
        at="policy.retry_delay_seconds",
        option=Option("Before a failed task's next attempt; doubled each time, up to 5m. 0: none.", "TIME"),
    ),
    "delay": JobField(
        DURATION_OR_0,
        "Time between the starts of two tasks of the job.",
        0,
        at="policy.start_delay_seconds",
        option=Option("Between the starts of two tasks: 1.5 (seconds), 1m.", "TIME"),
    ),
    "max_fails": JobField(
        Whole.within(TaskCount),
        "One more failed task than this stops the job.",
        at="policy.max_fails",
        option=Option("Stop the job when more tasks than this have failed.", "N"),
    ),
    "halt": JobField(
        TextType(),
        "",
        option=Option("When to end early, as GNU parallel: now,fail=1, soon,fail=10%, now,success=1, never.", "WHEN"),
        is_key=False,
    ),
    "enough_successes": JobField(
        Whole.within(TaskLimit),
        "Once so many tasks have succeeded, the job has, and the others are cancelled.",
        at="policy.enough_successes",
    ),
    "lets_running_end": JobField(
        Flag(),
        "Where max_fails, on_failure or enough_successes end the job, tasks that run may go on to their own end.",
        False,
        at="policy.lets_running_end",
    ),
    "on_failure": JobField(
        POLICIES,
        "What a failed task does to the others. Left out: stop in gangs, else continue.",
        at="policy.on_failure",
    ),
    "limit": JobField(
        Whole.within(TaskLimit),
        "At most so many tasks of the job at once.",
        at="policy.limit",
        option=Option("At most N tasks at once, as %N in an array.", "N", also=("-j", "--jobs"), parse=parse_limit),
    ),
    "keep": JobField(
        Flag(),
        "After its end it stays in the yard, with all that belongs to it, until somebody removes it.",
        False,
        at="policy.keep",
        option=Option("Never remove it by itself after its end; `yard rm` does."),
    ),
}

RESOURCES: Table = {
    "cpus": JobField(
        CPUS,
        "Cores of one task; fractions and 500m are understood.",
        1,
        option=Option("Cores for each task: 2, 0.5, 500m.", "N", also=("-c",)),
    ),
    "memory": JobField(
        SIZE,
        "Memory of one task: 512M, 24GB, or a number of MiB. Left out: not reserved.",
        option=Option(
            "Memory for each task: 512M, 24GiB, or a number of MiB. One that uses more is ended.", "SIZE", name="mem"
        ),
    ),
    "memory_limit": JobField(
        Flag(),
        "End a task that uses more memory than it asked for. Left out: yes, if it did.",
        option=Option("off: memory is reserved, and no limit.", "on|off", name="mem_limit", parse=parse_switch),
    ),
    "gpus": JobField(
        gpus_of(Gpus),
        "GPUs of one task: 2; or a range, 1..8 or 1.., for training that can be resized. Of one kind: h100:2.",
        0,
        option=Option(
            "GPUs for each task; h100:2 of one kind; a range (1..8, 1..) for training that is resized.",
            "[KIND:]N|A..B",
            also=("-G",),
        ),
    ),
    "gpu_type": JobField(
        KIND,
        "Only GPUs of this kind: words of their name, as in h100 or a100-80gb, or on a cluster a profile of MIG,"
        " mig-1g.10gb. Left out: any. Alone it means one GPU.",
        option=Option("Only GPUs of this kind: h100, a100-80gb; on a cluster also mig-1g.10gb.", "KIND"),
    ),
    "gpu_memory": JobField(
        SIZE,
        "Memory on each GPU: 20G, or a number of MiB; the rest is shared with others. Left out: whole GPUs."
        " Alone it means one GPU.",
        option=Option(
            "Memory on each GPU, which is then shared: 20G, or a number of MiB; without it GPUs are whole.",
            "SIZE",
            name="gpu_mem",
        ),
    ),
    "gpu_utilization": JobField(
        SHARE,
        "Share of each GPU's compute, 0.5 or 50%; the rest is shared with others. Alone it means one GPU.",
        option=Option("Share of each GPU's compute, likewise: 0.5, 50%.", "SHARE", name="gpu_util"),
    ),
    "whole_node": JobField(
        Flag(),
        "A node for itself; the amounts say how large it must be at least.",
        False,
        option=Option("A node for each task alone.", also=("--exclusive",)),
    ),
    "min_gpu_mem": JobField(
        DEVICE_SIZE,
        "Only GPUs that have so much memory in all: 40G, or a number of GiB. Alone it means one GPU.",
        option=Option("Only GPUs that have so much memory in all: 40G, or a number of GiB.", "GIB"),
    ),
}

CONTAINER: Table = {
    "image": JobField(
        Parsed(parse_image, {"type": "string", "pattern": r"^\S+$"}, "an image"),
        "A container image; on machines it is used only with container.",
        at="container.image",
        option=Option("The container image, for a cluster or --container.", "IMAGE"),
    ),
    "container": JobField(
        Flag(),
        "Run tasks in containers of the image on machines too, with docker or podman.",
        False,
        at="container.on_machines",
        option=Option("Run tasks in the image on machines too, with docker or podman."),
    ),
}

KUBERNETES: Table = {
    "kind": JobField(
        Parsed(parse_kind, {"enum": [*KINDS, *KINDS.values()]}, "pytorchjob or rayjob"),
        "As which object it runs on a Kubernetes cluster. Left out: a Job or a JobSet, by its shape.",
        at="kubernetes.kind",
        option=Option("As which object it runs on a cluster.", "pytorchjob|rayjob"),
    ),
    "volumes": JobField(
        ListOf(VOLUME, or_one=True),
        "PersistentVolumeClaims of a cluster and where tasks find them: CLAIM:PATH, or CLAIM:PATH:ro.",
        at="kubernetes.volumes",
        option=Option(
            "A PersistentVolumeClaim of the cluster, mounted.", "CLAIM:PATH[:ro]", name="volume", is_repeated=True
        ),
    ),
}

STAGING: Table = {
    "copy_forward": JobField(
        PATHS,
        "Paths in the working directory that are sent to other machines. Left out: all of it.",
        option=Option(
            "What to send to other machines, from the working directory; default: all of it.", "PATH", is_repeated=True
        ),
    ),
    "copy_backwards": JobField(
        PATHS,
        "Paths whose new or changed files are brought back from other machines. Left out: the working directory.",
        option=Option(
            "What to bring back from there, if new or changed; default: all of the working directory.",
            "PATH",
            is_repeated=True,
        ),
    ),
    "no_copy": JobField(Flag(), "", option=Option("Send nothing, and bring nothing back."), is_key=False),
}

TRAINING: Table = {
    "epochs": JobField(
        Whole.within(SomeSteps),
        "How many epochs there are in all.",
        at="training.epochs",
        option=Option("Of training: how many epochs there are in all.", "N"),
    ),
    "batch_size": JobField(
        Whole.within(SomeSteps),
        "Samples in one step of one worker.",
        at="training.batch_size",
        option=Option("Samples in a step of one worker.", "N"),
    ),
    "training_set_size": JobField(
        Whole.within(SomeSteps),
        "Samples in one epoch.",
        at="training.training_set_size",
        option=Option("Samples in an epoch.", "N"),
    ),
    "estimate": JobField(
        DURATION,
        "Your guess how long it takes; the first epoch corrects it.",
        at="training.estimated_seconds",
        option=Option("Your guess of the whole; the first epoch corrects it.", "TIME"),
    ),
    "preemptible": JobField(
        Flag(),
        "Whether it may be stopped for others. Left out: once it has said that it stops at checkpoints.",
        at="training.preemptible",
        option=Option("Other jobs may preempt it at any time."),
    ),
    "checkpoint_deadline": JobField(
        DURATION,
        "How long it may take to its next checkpoint once asked to stop. Left out: ten minutes, or two epochs.",
        at="training.yield_seconds",
        option=Option("How long it may take to its next checkpoint once asked to stop; default 10m.", "TIME"),
    ),
    "log_dir": JobField(
        Parsed(parse_log_dir, {"type": "string", "pattern": r"\S"}, "a directory"),
        "What TensorBoard reads.",
        at="training.log_dir",
        option=Option("What `yard tensorboard` shows.", "DIR"),
    ),
    "idle_gpu": JobField(
        IDLE_GPU,
        "What is done about a GPU that it holds and does not use.",
        "warn",
        at="training.idle_gpu_stop",
        option=Option("What is done about a GPU that it holds and does not use; default warn.", "warn|stop"),
    ),
    "idle_gpu_after": JobField(
        DURATION,
        "So long it may hold a GPU and not use it.",
        int(IDLE_GPU_SECONDS),
        at="training.idle_gpu_seconds",
    ),
}

TOP_LEVEL: tuple[Table, ...] = (JOB, INPUTS, POLICY, STAGING, CONTAINER, KUBERNETES)  # keys that no other key holds
FLAGGED = flags_of(JOB, INPUTS, POLICY, RESOURCES, CONTAINER, KUBERNETES, STAGING, TRAINING)
