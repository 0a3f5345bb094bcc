"""GenAI compatibility: commands and endpoints of IBM's genai-workload-manager over the yard: docs/compat/genai.md.

Nothing is stored here beside those jobs, except in the memory of a serving process: what jobs told it over HTTP.
"""
