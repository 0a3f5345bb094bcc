"""Command line `yard`: how does a person run, watch and stop jobs? It reads flags, asks the client, prints answers.

One module for each verb in `commands/`, imported when it is used; what is printed goes through `output/`. Nothing is
decided here that another client would have to decide again. Start-up time is a promise: `yard --help` < 0.25 s.
"""
