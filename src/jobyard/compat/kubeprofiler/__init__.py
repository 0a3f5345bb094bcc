"""`run-scheduler` and its kin, of KubeProfiler's scheduler. What each flag becomes: docs/compat/kubeprofiler.md."""
