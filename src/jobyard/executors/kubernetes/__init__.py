"""Kubernetes executor: jobs as objects of a cluster. `manifest`, `pods`, `kinds`, `states` and `plan` are pure: a job
becomes objects, and foreign states become ours. `executor` and what it is made of ask the cluster and wait.

A job is reconciled in this order; read the files so:

    wanted        what should be there: objects, and which attempt is in which of them     pure
    observed      what watches have seen of it: a cache
    done          what this server has sent and told: a new server has none of it
    plan          the steps from one to the other; with object_keys, attempt_pods, telling  pure
    reconciler    gathers the three, asks for the plan, and begins again when one changes
    carrying_out  takes the steps, one by one, through the API
    last_words    reads how a pod ended, and its output, before it is told
"""
