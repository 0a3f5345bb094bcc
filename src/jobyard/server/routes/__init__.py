"""Routes: one small module for each verb: parse, call, answer."""

from jobyard.server.routes import (
    annotate,
    cancel,
    clusters,
    diff,
    endings,
    events,
    jobs,
    logs,
    nodes,
    priority,
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

_JOBS = (submit, jobs, logs, endings, results, cancel, yield_, scale, retry, priority, annotate, why, unit, diff)
ALL_ROUTERS = [verb.router for verb in (*_JOBS, nodes, clusters, events, server, tokens)]
