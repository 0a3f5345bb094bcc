"""Ray submitter: which resources does the pod need that submits a RayJob's command? They are counted with the head."""

from __future__ import annotations

from jobyard.model.resources import Resources

OWN_SUBMITTER = Resources(100, 200)  # for jobs of ours; it waits, and passes on what the command prints
DEFAULT_SUBMITTER = Resources(500, 200)  # KubeRay's default where the manifest has none
