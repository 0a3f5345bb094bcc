"""HTTP client of a yard's server: typed calls, the server's own error classes, streams that survive a server restart.

Standard library only and synchronous: the command line pays for each import. Nothing here prints: what to show is the
command line's business.
"""
