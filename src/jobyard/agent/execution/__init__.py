"""Execution: one task's process, its environment, container and memory limit, run by a lane."""
