"""Kubernetes executor: jobs as objects of a cluster. `manifest`, `pods`, `kinds`, `states` and `plan` are pure: a job
becomes objects, and foreign states become ours. `executor` and what it is made of ask the cluster and wait.
"""
