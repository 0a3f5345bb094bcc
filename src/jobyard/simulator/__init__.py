"""The driver in virtual time: the same engine and scheduler, a fake agent, one source of chance. Never the server."""
