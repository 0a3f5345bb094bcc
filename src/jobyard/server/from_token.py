"""Jobs submitted with a token: what may they use of the server's own machine? Neither its files nor its account."""

from __future__ import annotations

from dataclasses import replace

from jobyard.engine.yard_state import YardState
from jobyard.errors import UserError
from jobyard.model.job import JobSpec
from jobyard.scheduling.explain import OWNERS_ALONE, may_match, why_owners_alone
from jobyard.scheduling.where import where_of
from jobyard.server.rights import Caller, check_owner

NOTHING_SENT = "over TCP no files are sent along: on other machines tasks begin in the home of the account there"


def submitted_by(caller: Caller, spec: JobSpec) -> JobSpec:
    """The spec with its true submitter. Raises NotAllowed where a token's job names files of the server."""
    submitter = replace(spec.submitter, user=caller.name, submitted_with=caller.token, environment="")
    spec = replace(spec, submitter=submitter, staging=replace(spec.staging, snapshot=""))
    if caller.is_owner:
        return spec
    staging, fetch = spec.staging, "let tasks write to $YARD_OUTPUT_DIR, and get it with `yard fetch`"
    put = "put them into an image, or where the nodes are"
    check_owner(caller, "copy-forward", ", ".join(staging.copy_forward), put)
    check_owner(caller, "copy-backwards", ", ".join(staging.copy_back), fetch)
    check_owner(caller, "results_dir", staging.results_dir, fetch)
    check_owner(caller, "output", staging.output, "get the output with `yard fetch`, or `yard run --results DIR`")
    check_owner(caller, "error", staging.error, "get the output with `yard fetch`, or `yard run --results DIR`")
    return spec


def check_machines(state: YardState, spec: JobSpec) -> None:
    """Raises UserError where only machines could run it that are reserved for the owner."""
    if not spec.submitter.submitted_with or any(may_match(config, spec.on) for config in state.places.unreached):
        return
    if why := why_owners_alone(state.places.nodes.values(), where_of(spec, spec.groups[0])):
        raise UserError(f"job {spec.name!r} cannot run: {why}; {OWNERS_ALONE}")
