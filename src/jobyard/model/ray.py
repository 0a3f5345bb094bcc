"""What does the pod take that hands a RayJob's command to Ray? It has no slot of its own: the head's holds it too."""

from __future__ import annotations

from jobyard.model.resources import Resources

OWN_SUBMITTER = Resources(100, 200)  # of jobs of ours; it waits, and passes on what the command prints
DEFAULT_SUBMITTER = Resources(500, 200)  # as KubeRay makes it for who writes none
