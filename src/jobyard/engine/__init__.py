"""Engine: all state of a yard, changed by one event at a time. Synchronous: no clock, no I/O, no randomness."""
