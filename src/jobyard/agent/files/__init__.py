"""Files: the trees that jobs run in, what they write, and how that travels."""
