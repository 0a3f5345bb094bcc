"""Image builds: from a git tree to an image that is named by its digest. Builders run in the submitter's process.

What runs an image does not belong here: it is given a name with a digest, and never learns who built it.
"""
