"""The command `yard`: reads a person's words, asks the client, shows what comes back.

One module for each verb in `commands/`, imported when it is used; what is printed goes through `output/`. Nothing is
decided here that another client would have to decide again. Start-up time is a promise: `yard --help` < 0.25 s.
"""
