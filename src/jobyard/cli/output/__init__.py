"""The one place that prints: tables and sentences for people, JSON for programs, the live display, tasks' output."""
