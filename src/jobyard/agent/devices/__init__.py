"""GPUs: real ones by NVML, and fake ones for tests."""
