"""A real Kubernetes for tests: built once from its Go modules, started as processes of ours, gone afterwards."""
