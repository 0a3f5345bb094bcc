"""Talks to a yard's server: typed calls, the server's own error classes, streams that outlive the server.

Standard library only and synchronous: the command line pays for each import. Nothing here prints: what to show is the
command line's business.
"""
