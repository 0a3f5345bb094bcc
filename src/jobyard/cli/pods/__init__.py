"""A task's pod, reached from here with the caller's own identity. Needs the extra `kubernetes`; see `reaching`."""
