"""Kubernetes, as all who speak with a cluster need it: the executor, the manifests' reader, the command lines.

Here: how a cluster is asked, by whose identity, where its objects are and how it writes amounts. Not here: what a job
becomes there (executors/kubernetes), what a manifest means (manifests), what is printed (cli, compat).

Only `api`, `identity`, `blocking` and `watching` need the libraries of `jobyard[kubernetes]`; nothing imports these
four before a cluster is to be asked.
"""
