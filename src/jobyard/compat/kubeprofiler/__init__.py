"""KubeProfiler compatibility: `run-scheduler` and its other commands. Flag by flag: docs/compat/kubeprofiler.md."""
