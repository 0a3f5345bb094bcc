"""Ways to write a job down, each a translation into `model`: a command, a batch file, a native manifest, AIchor's.

Here belongs what reads a user's words and says what is wrong with them. What to do with the job does not.
Nothing is imported here: YAML costs start-up time that a plain command need not pay.
"""
