"""The supervisor on a machine: one zipapp, standard library only, Python 3.8 and up; imports nothing else of ours."""
