"""Routes: one small module for each verb: parse, call, answer."""

from jobyard.server.routes import (
    annotate,
    cancel,
    clusters,
    diff,
    endings,
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

_READ = (jobs, logs, endings, results, why, unit, diff)
_CHANGED = (submit, cancel, yield_, scale, retry, priority, annotate, remove)
ALL_ROUTERS = [verb.router for verb in (*_CHANGED, *_READ, nodes, clusters, events, gc, server, tokens)]
