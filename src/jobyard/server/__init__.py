"""Server, the driver in real time: the one place that waits and writes. Observe, record, decide, act."""
