"""What one user must not be able to do to another: over TCP, and as two real users of the operating system."""
