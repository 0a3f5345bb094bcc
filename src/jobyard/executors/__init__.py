"""Executors: one module or package per place where jobs run. They report what they see; the engine judges it."""
