"""The commands and endpoints of IBM's genai-workload-manager, as views of the yard's own jobs: docs/compat/genai.md.

Nothing is kept here beside them, except in the memory of a process that serves: what jobs told it over HTTP.
"""
