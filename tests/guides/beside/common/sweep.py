import os

print("point", os.environ["SLURM_ARRAY_TASK_ID"])
