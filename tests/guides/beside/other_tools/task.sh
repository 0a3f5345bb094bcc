#!/bin/bash
echo task $SLURM_ARRAY_TASK_ID
