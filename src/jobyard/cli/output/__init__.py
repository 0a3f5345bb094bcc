"""Output: the one place that prints. Tables and sentences for people, JSON for programs, live view, task output."""
