"""Manifests: ways to write a job down, each translated into `model`: command, batch file, native manifest, AIchor's.

Here belongs what reads a user's words and says what is wrong with them. What to do with the job does not.
Nothing is imported here: YAML costs start-up time that a plain command need not pay.
"""
