"""`execute_batch` and `execute_remote` of ml-scheduler. What each flag becomes: docs/compat/ml-scheduler.md."""
