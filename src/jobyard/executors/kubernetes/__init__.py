"""Jobs as Kubernetes objects. `manifest`, `pods`, `kinds`, `states` and their kin are pure: a job becomes objects, and
foreign states become ours. `executor` and what it is made of ask and wait; only `client` knows the official library.
"""
