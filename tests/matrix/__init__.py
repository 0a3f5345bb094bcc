"""The matrix of `model/field_support.py`: each field of a job on each kind of executor."""
