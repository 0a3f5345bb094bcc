"""Wire format: what may a client ask, and what does the server answer? Plain dataclasses, in model.codec's JSON."""
