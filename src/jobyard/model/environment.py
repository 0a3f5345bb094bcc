"""Environment variables: which are the yard's own?"""

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
