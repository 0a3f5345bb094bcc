#!/bin/sh
echo "trained with $*, task ${SLURM_ARRAY_TASK_ID-none}"
