"""Simulator, the driver in virtual time: same engine and scheduler, a fake agent, one random source. No server."""
