"""Scripts that the tests of the callbacks run with the real frameworks."""
