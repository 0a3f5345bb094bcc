"""Kubernetes client: what do the executor, the manifest reader and the command lines all need to ask a cluster?

Here: requests to a cluster, the identity for them, object paths, and how amounts are written. Not here: what a job
becomes there (executors/kubernetes), what a manifest means (manifests), what is printed (cli, compat).

Only `api`, `identity`, `blocking` and `watching` need the libraries of `jobyard[kubernetes]`; nothing imports these
four before a cluster is to be asked.
"""
