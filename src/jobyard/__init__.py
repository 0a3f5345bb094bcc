"""Jobyard: one yard for all your jobs, on this machine, over SSH, or on Kubernetes."""

__version__ = "0.1.0"
