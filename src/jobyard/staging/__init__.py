"""Code on its way out and results on their way home, on the submitting machine: which files, packed how, put where.

No server, no connection and no agent here: this package reads and writes directories and archives, nothing else.
"""
