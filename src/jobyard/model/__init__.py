"""The nouns: frozen values with no I/O, clock or randomness. Everything may import them; they import only errors."""
