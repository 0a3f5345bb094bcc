"""Staging: code that is sent out and results that come back, on the submitting machine: which files, where, how?

No server, no connection and no agent here: this package reads and writes directories and archives, nothing else.
"""
