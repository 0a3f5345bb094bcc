"""Scheduler: pure functions from a Snapshot to a Plan. Nothing here runs anything, waits, or remembers."""
