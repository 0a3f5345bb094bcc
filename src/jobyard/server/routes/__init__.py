"""Routes: one small module for each verb: parse, call, answer."""

from jobyard.server.routes import (
    annotate,
    cancel,
    clusters,
    diff,
    events,
    gc,
    jobs,
    logs,
    nodes,
    priority,
    remove,
    results,
    retry,
    scale,
    server,
    submit,
    tokens,
    unit,
    why,
    yield_,
)

_JOBS = (submit, jobs, logs, results, cancel, yield_, scale, retry, priority, annotate, remove, why, unit, diff)
ALL_ROUTERS = [verb.router for verb in (*_JOBS, nodes, clusters, events, gc, server, tokens)]
