"""One small module per verb: parse, call, answer."""

from jobyard.server.routes import (
    cancel,
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
    why,
    yield_,
)

_VERBS = (submit, jobs, logs, results, cancel, yield_, scale, retry, priority, why, nodes, events, server, tokens)
ALL_ROUTERS = [verb.router for verb in _VERBS]
