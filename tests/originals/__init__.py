"""What the original programs do, from the outside, replayed against a yard.

Belongs here: for each original its facts (`NAME.md`, or `NAME.yaml` where tests read them), a program written anew from
them where one is needed, and the tests that run it. Not here: code of an original, and tests of our own commands that
stand in for one (`tests/unit/compat`).
"""
