"""Attempts: what runs, waits, stops and has ended on this machine, and what the server is told of it."""
