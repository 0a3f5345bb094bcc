"""Field support: which kinds of executors do what a job asks for, field by field? What a kind cannot do stands here.

A new field needs a row, and each cell that refuses or tells needs an example in `tests/matrix`: tests see to both.
"""

from __future__ import annotations

from jobyard.model import substitution
from jobyard.model.environment import NOT_IN_RAY, SET_BY_PYTORCHJOB
from jobyard.model.executor_kinds import CLUSTER, MACHINES, OPERATORS, PLAIN, PODS, ExecutorKind
from jobyard.model.support import FieldSupport, by_yard, in_tasks, refused, told, works
from jobyard.model.support_conditions import (
    allows_fails,
    continues,
    has_breaks,
    image_is_not_told,
    in_any_group,
    is_elsewhere,
    is_no_aichor,
    kubernetes_retries,
    limits_a_jobset,
    sets_any_of,
)

_LOCAL, _SSH, _CONTAINER = MACHINES
_JOB, _JOBSET, _PYTORCHJOB, _RAYJOB = PODS
_OBJECT = ExecutorKind.OBJECT

_NO_ARRAY = refused(
    "a {kind} has one command and workers of one kind, no array, no groups; give --workers alone, or leave --kind out"
)


# -- the rows, in the order of the nouns

COMMANDS = (
    by_yard(
        "groups.command",
        "{%}",
        (
            CLUSTER,
            refused(
                "the pods of a cluster have no slots; leave it out, or use {{#}}",
                in_any_group(lambda group: substitution.uses_slot(group.command)),
                "`{%}`",
            ),
        ),
    ),
    by_yard("groups.command.argv", "command"),
    by_yard("groups.command.shell", "command"),
    in_tasks("groups.command.lines", "command", (OPERATORS, _NO_ARRAY)),
    in_tasks(
        "groups.command.inputs",
        "inputs",
        (
            (_JOB, _JOBSET),
            refused(
                "tasks of a cluster find their values in a table of lines; put a text of several lines into a file, and"
                " give its name",
                has_breaks,
                "values with line breaks",
            ),
        ),
        (OPERATORS, _NO_ARRAY),
    ),
    in_tasks("groups.command.script", "script"),
)

_NAMES_OF_OPERATORS = (
    (
        (_PYTORCHJOB,),
        told(
            "the training operator sets the address, the port, the ranks and PYTHONUNBUFFERED itself: the job's own"
            " values of these are not used",
            sets_any_of(SET_BY_PYTORCHJOB),
            "`MASTER_PORT` and the like",
        ),
    ),
    (
        (_RAYJOB,),
        told(
            "Ray's processes find no ranks, no MASTER_ADDR and the like: the job's own values of these are not used",
            sets_any_of(NOT_IN_RAY),
            "`RANK` and the like",
        ),
    ),
)
_COUNTED_ONCE = "the workers of a {kind} are counted once; give count (--workers) alone"
GROUPS = (
    by_yard(
        "groups.name",
        "groups",
        ((_PYTORCHJOB,), refused(_NO_ARRAY.sentence, lambda asked: len(asked.spec.groups) > 1, "several")),
        (
            (_RAYJOB,),
            refused(_NO_ARRAY.sentence, lambda asked: len(asked.spec.groups) != 2, "not head and worker"),
        ),
    ),
    by_yard("groups.count", "count"),
    by_yard(
        "groups.completions",
        "completions",
        (
            (_PYTORCHJOB,),
            refused(
                _COUNTED_ONCE, in_any_group(lambda group: group.count > 1 and group.completions > 1), "beside `count`"
            ),
        ),
        ((_RAYJOB,), refused(_COUNTED_ONCE, in_any_group(lambda group: group.completions > 1), "more than 1")),
    ),
    by_yard(
        "groups.parallelism",
        "parallelism",
        (
            (_PYTORCHJOB,),
            refused(
                "a {kind} starts all its tasks together; leave it out",
                in_any_group(lambda group: (group.parallelism or group.completions) < group.completions),
                "fewer than there are",
            ),
        ),
    ),
    in_tasks("groups.env", "env", *_NAMES_OF_OPERATORS),
    in_tasks("groups.array", "--array", (OPERATORS, _NO_ARRAY)),
    in_tasks("groups.least_device_mib", "--min-gpu-mem"),
    in_tasks(
        "groups.cpu_limit_millis",
        "cpu_limit_millis",
        (MACHINES, told("cpu_limit_millis has no effect on machines: cores are reserved, not capped", is_no_aichor)),
    ),
    in_tasks(
        "groups.shm_mib",
        "shm_mib",
        (PLAIN, told("shm_mib has no effect without a container: /dev/shm is the machine's own", is_no_aichor)),
    ),
    by_yard(
        "groups.node_selector",
        "node_selector",
        (MACHINES, told("node_selector has no effect on machines: choose them with --on", is_no_aichor)),
    ),
    by_yard(
        "groups.tolerations",
        "tolerations",
        (MACHINES, told("tolerations have no effect on machines: they have no taints", is_no_aichor)),
    ),
    in_tasks(
        "groups.count_most",
        "count_most",
        (
            (*MACHINES, _JOB, _JOBSET, _PYTORCHJOB),
            refused("only the workers of a RayJob scale by themselves; leave it out"),
        ),
    ),
)

_WHOLE_GPU = "in pods a share of a GPU is a whole one: Kubernetes counts whole GPUs, and each task gets one alone"
RESOURCES = (
    by_yard("groups.resources.cpu_millis", "--cpus"),
    by_yard("groups.resources.memory_mib", "--mem"),
    by_yard("groups.resources.gpus", "--gpus"),
    in_tasks("groups.resources.gpu_memory_mib", "--gpu-mem", (PODS, told(_WHOLE_GPU))),
    in_tasks("groups.resources.gpu_percent", "--gpu-util", (PODS, told(_WHOLE_GPU))),
    in_tasks(
        "groups.resources.whole_node",
        "--whole-node",
        (PODS, refused("a whole node cannot be asked of Kubernetes yet; ask for its cores and GPUs")),
    ),
    in_tasks(
        "groups.resources.least_device_mib",
        "resources.least_device_mib",
        (PODS, refused("pods are given it by their group; say least_device_mib of the group")),
    ),
    in_tasks("groups.resources.memory_limit", "--mem-limit"),
    in_tasks("groups.resources.gpu_kind", "--gpu-type"),
)

JOB = (
    by_yard("name", "--name"),
    by_yard("gang", "gang"),
    by_yard("after", "--after"),
    by_yard("on", "--on"),
    in_tasks("env", "--env", *_NAMES_OF_OPERATORS),
    by_yard(
        "workdir",
        "--workdir",
        (
            (_SSH,),
            told(
                "--workdir has no effect on other machines with --no-copy: tasks begin in the home there",
                lambda asked: asked.spec.staging.no_copy,
                "with `--no-copy`",
            ),
        ),
        (CLUSTER, told("--workdir has no effect in pods: they begin where their image says")),
        when_asked=is_elsewhere,
    ),
)

_ENDS_AS_ONE = "a {kind} ends as a whole when one of its tasks has failed; leave it out"
_JOBSET_STOPS = "a JobSet stops when one of its Jobs has failed; leave it out, or give one group with count 1"
POLICY = (
    by_yard(
        "policy.priority",
        "--priority",
        (
            CLUSTER,
            told(
                "--priority does not reach Kueue, which decides on this cluster: its queues have an order of their own",
                lambda asked: asked.has_queue,
                "with a queue of Kueue",
            ),
        ),
    ),
    in_tasks(
        "policy.limit",
        "--limit",
        (
            (_JOBSET,),
            refused(
                "a limit over groups or replicas is more than JobSet can count; give the groups a parallelism instead",
                limits_a_jobset,
                "fewer than there are",
            ),
        ),
        (OPERATORS, refused("a {kind} starts all its tasks together; leave it out")),
    ),
    in_tasks(
        "policy.timeout_seconds",
        "--timeout",
        ((_RAYJOB,), told("--timeout is like a deadline: it counts for the whole RayJob, from when it is let in")),
    ),
    by_yard("policy.deadline_seconds", "deadline"),
    by_yard("policy.retries", "--retries"),
    by_yard(
        "policy.retry_delay_seconds",
        "--retry-delay",
        (
            (_JOB, _JOBSET),
            told(
                "--retry-delay does not reach Kubernetes, which begins the next pod itself: after ten seconds, twice"
                " as long each time after that",
                kubernetes_retries,
                "neither a gang nor a single training",
            ),
        ),
    ),
    in_tasks(
        "policy.max_fails",
        "--max-fails",
        ((_JOBSET,), refused(_JOBSET_STOPS, allows_fails, "more than 0")),
        (OPERATORS, refused(_ENDS_AS_ONE, allows_fails, "more than 0")),
    ),
    in_tasks(
        "policy.on_failure",
        "on_failure",
        ((_JOBSET,), refused(_JOBSET_STOPS, continues, "`continue`")),
        (OPERATORS, refused(_ENDS_AS_ONE, continues, "`continue`")),
    ),
    by_yard("policy.grace_seconds", "grace"),
    by_yard("policy.keep", "--keep"),
    by_yard(
        "policy.overcommit",
        "policy.overcommit",
        (CLUSTER, told("overcommit has no effect on a cluster: Kubernetes never gives more than there is")),
    ),
    in_tasks(
        "policy.enough_successes",
        "enough_successes",
        (OPERATORS, refused("the tasks of a {kind} end together; leave it out")),
    ),
    by_yard(
        "policy.start_delay_seconds",
        "--delay",
        (CLUSTER, refused("Kubernetes starts the pods of a job by itself; leave it out")),
    ),
    in_tasks(
        "policy.lets_running_end",
        "lets_running_end",
        ((_JOB,), told("lets_running_end: Kubernetes may begin further tasks of the job, and they are ended at once")),
        ((_JOBSET,), refused(_JOBSET_STOPS)),
        (OPERATORS, refused(_ENDS_AS_ONE)),
    ),
)

_NOTHING_COPIED = refused("nothing is copied to or from a cluster; put it into the image, or on a --volume")
STAGING = (
    in_tasks("staging.copy_forward", "--copy-forward", ((_LOCAL,), works("it is there")), (CLUSTER, _NOTHING_COPIED)),
    in_tasks("staging.copy_back", "--copy-backwards", ((_LOCAL,), works("it is there")), (CLUSTER, _NOTHING_COPIED)),
    by_yard("staging.no_copy", "--no-copy", (CLUSTER, works("nothing is copied there"))),
    in_tasks(
        "staging.subdir",
        "staging.subdir",
        (
            (_LOCAL, _CONTAINER),
            told("staging.subdir has no effect on the server's own machine: tasks begin in workdir"),
        ),
        (PODS, refused("no tree is sent to a cluster; leave it out")),
    ),
    in_tasks(
        "staging.stdin",
        "--stdin",
        (CLUSTER, refused("the pods of a cluster read none; put the file into the image or on a volume")),
    ),
    in_tasks(
        "staging.results_dir",
        "results_dir",
        ((_LOCAL,), works("results stay where tasks write them")),
        (
            CLUSTER,
            refused("nothing is copied from a cluster; let tasks write to $YARD_OUTPUT_DIR, on a --volume or storage"),
        ),
    ),
    by_yard("staging.output", "--output"),
    by_yard(
        "staging.error",
        "--error",
        (CLUSTER, refused("a pod writes both streams into one; leave it out, output has both")),
    ),
)

_CLUSTER_ONLY = refused("a {kind} runs on a cluster only; say which: --on kubernetes")
KUBERNETES = (
    by_yard("kubernetes.manifest", "manifest", (MACHINES, _CLUSTER_ONLY)),
    by_yard("kubernetes.kind", "--kind", (MACHINES, _CLUSTER_ONLY)),
    in_tasks("kubernetes.volumes", "--volume", (MACHINES, told("volumes are not used: machines have directories"))),
    in_tasks(
        "kubernetes.secrets",
        "--mount-secret",
        (MACHINES, refused("a Secret is for pods, and this job runs on machines; add --on kubernetes")),
    ),
)

CONTAINER = (
    by_yard(
        "container.image",
        "--image",
        (
            PLAIN,
            told("image {image!r} is not used: tasks run as plain processes on machines", image_is_not_told),
        ),
    ),
    by_yard(
        "container.on_machines",
        "--container",
        (CLUSTER, told("--container has no effect on a cluster: every task is in a container there")),
    ),
    by_yard("container.git", "container.git"),
    in_tasks(
        "container.mounts",
        "container.mounts",
        (PLAIN, refused("tasks without a container see the machine's own directories; say on_machines as well")),
        (PODS, refused("pods see no directories of machines; mount a claim with --volume")),
    ),
    in_tasks(
        "container.ports",
        "container.ports",
        (PLAIN, refused("tasks without a container have the machine's own ports; say on_machines as well")),
        (PODS, refused("ports of pods are reached with `yard port-forward`; leave it out")),
    ),
)

_NOT_TOLD = told("pods of an object of your own are told nothing of the training: only the estimate counts")
_NOBODY_MEASURES = refused("nobody measures the GPUs of pods, so an idle one is not noticed; leave it out")
TRAINING = (
    by_yard("training.epochs", "--epochs", ((_OBJECT,), _NOT_TOLD)),
    by_yard("training.batch_size", "--batch-size", ((_OBJECT,), _NOT_TOLD)),
    by_yard("training.training_set_size", "--training-set-size", ((_OBJECT,), _NOT_TOLD)),
    by_yard("training.estimated_seconds", "--estimate"),
    by_yard("training.heartbeat_steps", "heartbeat_steps", ((_OBJECT,), _NOT_TOLD)),
    by_yard("training.preemptible", "--preemptible"),
    by_yard(
        "training.yield_seconds",
        "--checkpoint-deadline",
        (
            (_OBJECT,),
            told("pods of an object of your own cannot be asked to stop at a checkpoint: they are ended at once"),
        ),
    ),
    by_yard(
        "training.log_dir",
        "--log-dir",
        ((_SSH,), works("once its results are here")),
        (
            CLUSTER,
            told("--log-dir: `yard tensorboard` looks on this machine; run one in a pod, and use `yard port-forward`"),
        ),
    ),
    by_yard("training.idle_gpu_stop", "--idle-gpu", (CLUSTER, _NOBODY_MEASURES)),
    by_yard("training.idle_gpu_seconds", "idle_gpu_after", (CLUSTER, _NOBODY_MEASURES)),
    by_yard(
        "elastic.gpus",
        "--gpus",
        ((_RAYJOB,), refused("the GPUs of a RayJob's workers cannot be a range; give a plain number")),
    ),
    in_tasks(
        "elastic.workers",
        "--workers",
        ((_RAYJOB,), refused("Ray itself scales within a range; say count_most of its workers")),
    ),
)

SECTIONS: tuple[tuple[str, tuple[FieldSupport, ...]], ...] = (
    ("The job", JOB),
    ("What tasks run", COMMANDS),
    ("Groups", GROUPS),
    ("What one task needs", RESOURCES),
    ("How it runs", POLICY),
    ("Files", STAGING),
    ("Images and containers", CONTAINER),
    ("Kubernetes", KUBERNETES),
    ("Training", TRAINING),
)
FIELDS = tuple(row for _, rows in SECTIONS for row in rows)

# Parts of a spec that no executor does anything with, and why.
NOT_OF_AN_EXECUTOR = {
    "submitter": "who asked, from where, and what they are told",
    "cluster": "the yard sets it, by `on`",
    "groups.gpu_products": "the yard sets it, by gpu_kind and what the nodes of the cluster have",
    "groups.gpu_profile": "the yard sets it, by gpu_kind and what the nodes of the cluster have",
    "staging.snapshot": "the yard sets it, when it has frozen the tree",
    "container.build": "whoever submits builds first, and sends the image",
}
