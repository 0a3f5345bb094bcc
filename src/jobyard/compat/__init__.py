"""Compatibility: commands of other systems, as thin translations into what the yard does. One package for each system.

Nothing is decided here: flags become a job, the yard runs it, and the output is in the other system's words.
"""
