"""Drop-in for the library of the same name: a script written for KubeProfiler runs in a yard unchanged.

Belongs here: the names of that library, over `jobyard.sdk`. It makes no thread and no connection; like the SDK it needs
the standard library only, and Python 3.8.
"""
