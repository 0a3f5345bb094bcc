"""Stands in for the library of the same name, so that a script written for it runs in a yard as it is.

Belongs here: the names of that library, over `jobyard.sdk`. It makes no thread and no connection; like the SDK it needs
the standard library only, and Python 3.8.
"""
