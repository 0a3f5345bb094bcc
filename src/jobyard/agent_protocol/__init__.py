"""Agent protocol: the files, messages and exit codes that server, agent, SDK and pods agree on.

Standard library only, Python 3.8 and up: it goes with the agent to every machine. It knows nothing else of ours.
"""
