#!/bin/sh
echo "$SLURM_ARRAY_TASK_ID is odd"
