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
    server,
    submit,
    tokens,
    why,
)

_VERBS = (submit, jobs, logs, results, cancel, retry, priority, why, nodes, events, server, tokens)
ALL_ROUTERS = [verb.router for verb in _VERBS]
