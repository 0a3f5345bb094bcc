"""Verb support: which verbs of the command line can be used for a job, by the kind of executor that it runs on?

Here `told` means that a verb does a part, or does it otherwise: the page says which.
"""

from __future__ import annotations

from jobyard.model.executor_kinds import CLUSTER, MACHINES, PODS, ExecutorKind
from jobyard.model.support import Exceptions, VerbSupport, cells_of, refused, told, works

_LOCAL, _SSH, _CONTAINER = MACHINES
_JOB, _JOBSET, _PYTORCHJOB, _RAYJOB = PODS
_TOGETHER = refused("the tasks of a gang are cancelled and tried again together")
_ELSEWHERE = "where the server is on another machine, with the caller's own ssh, and not to the server's own machine"


def _verb(verb: str, *exceptions: Exceptions) -> VerbSupport:
    return VerbSupport(verb, cells_of(exceptions))


VERBS = (
    _verb("attach"),
    _verb("cancel"),
    _verb(
        "cancel --task",
        ((_JOBSET,), told("the JobSet ends, and its other tasks begin anew in Jobs of their own")),
        ((_PYTORCHJOB, _RAYJOB), _TOGETHER),
        ((ExecutorKind.OBJECT,), told("the object ends, for it has no way to leave a task out")),
    ),
    _verb(
        "cancel --checkpoint",
        ((_RAYJOB,), works("the command is asked, on the head")),
        ((ExecutorKind.OBJECT,), told("its pods cannot be asked, and are ended at once")),
    ),
    _verb("cat"),
    _verb("exec", (MACHINES, works(f"in the task's directory and environment; {_ELSEWHERE}"))),
    _verb("fetch", (CLUSTER, told("the output of its tasks comes; what they wrote into files stays in the cluster"))),
    _verb("joblog"),
    _verb("logs"),
    _verb("logs --stream", (CLUSTER, told("pods write one stream: all of it is stdout, and stderr is empty"))),
    _verb(
        "port-forward",
        ((_LOCAL, _SSH), works(_ELSEWHERE)),
        ((_CONTAINER,), works(f"of a container with published ports, to these; {_ELSEWHERE}")),
    ),
    _verb("priority"),
    _verb("retry"),
    _verb("retry --task", ((_PYTORCHJOB, _RAYJOB), _TOGETHER)),
    _verb("rm"),
    _verb("scale", ((_RAYJOB,), refused("Ray itself scales its workers within their range"))),
    _verb("show"),
    _verb(
        "tensorboard",
        ((_SSH,), works("once its results are here")),
        (CLUSTER, refused("it looks on this machine alone; use `yard port-forward` to one in a pod")),
    ),
    _verb("wait"),
    _verb("why"),
)
