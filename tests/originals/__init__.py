"""What the original programs do, from the outside, replayed against a yard.

Belongs here: for each original a page of facts (`NAME.md`), a program written anew from that page, and the tests that
run it. Not here: code of an original, and tests of our own commands that stand in for one (`tests/unit/compat`).
"""
