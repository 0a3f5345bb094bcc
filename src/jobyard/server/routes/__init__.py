"""One small module per verb: parse, call, answer."""

from jobyard.server.routes import cancel, events, jobs, logs, nodes, priority, retry, server, submit, tokens, why

ALL_ROUTERS = [
    module.router for module in (submit, jobs, logs, cancel, retry, priority, why, nodes, events, server, tokens)
]
