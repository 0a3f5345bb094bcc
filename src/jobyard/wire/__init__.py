"""The words on the wire: what a client asks and what the server answers. Plain dataclasses, in model.codec's JSON."""
