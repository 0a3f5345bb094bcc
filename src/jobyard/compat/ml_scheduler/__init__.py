"""ml-scheduler compatibility: `execute_batch` and `execute_remote`. Flag by flag: docs/compat/ml-scheduler.md."""
