"""Pod access: a task's pod, reached with the caller's own identity. Needs the extra `kubernetes`; see `reaching`."""
