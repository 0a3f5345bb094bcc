"""System: the operating system and the event loop: processes, memory, timers, connections. Knows no job."""
