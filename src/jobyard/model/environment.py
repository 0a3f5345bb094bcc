"""Environment variables: which are the yard's own, and which do operators of Kubernetes set or leave out?"""

from __future__ import annotations

# Of the submitter, and of no use to a task: they give access to the yard itself, or to its database.
NEVER_KEPT = frozenset({"YARD_TOKEN", "YARD_URL", "YARD_DB"})
# Set for tasks by the server and the agent. Nobody else sets them, and a job submitted from inside a task does not take
# them for its own.
SCRIPT = "YARD_SCRIPT"  # the text of a script, on its way to the task; gone when it runs
YARD_NAMES = frozenset(
    {SCRIPT}
    | {"YARD_JOB_ID", "YARD_JOB_NAME", "YARD_GROUP", "YARD_TASK", "YARD_ATTEMPT", "YARD_NODE", "YARD_LINE"}
    | {"YARD_SEQ", "YARD_SLOT"}
    | {"YARD_OUTPUT_DIR", "YARD_CHECKPOINT_DIR", "YARD_SPOOL", "YARD_STOP_FILE", "YARD_ERROR_FILE"}
    | {"YARD_REPORT_ADDRESS", "YARD_EPOCHS", "YARD_EPOCHS_DONE", "YARD_RESUMED", "YARD_HEARTBEAT"}
)
# The operator of a PyTorchJob appends these to the environment of all containers: training-operator 1.9, envvar.go.
SET_BY_PYTORCHJOB = frozenset(
    {"MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "PET_NODE_RANK", "PET_NNODES", "PET_MASTER_ADDR"}
    | {"PET_MASTER_PORT", "PYTHONUNBUFFERED"}
)
# Ray's workers know nothing of ranks, and a worker is not told which one it is.
NOT_IN_RAY = frozenset(
    {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT"}
    | {"PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT", "TF_CONFIG"}
    | {"JOB_INDEX", "JOB_GLOBAL_INDEX", "JOB_COMPLETION_INDEX", "NUM_NODES"}
)
