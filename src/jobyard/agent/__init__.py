"""Agent: supervises attempts on a machine. One zipapp, standard library only, Python 3.8 and up."""
