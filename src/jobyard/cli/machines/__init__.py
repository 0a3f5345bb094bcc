"""Machine access: a task's process on a machine, reached with the caller's own rights and ssh; see `reaching`."""
