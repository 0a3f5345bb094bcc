"""Top: the live view of the whole yard. Only `yard top` imports it: textual takes a while to load."""
