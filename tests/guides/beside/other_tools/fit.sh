#!/bin/bash
#SBATCH --job-name=fit
#SBATCH --array=0-1
#SBATCH --cpus-per-task=2 --mem=64M
#SBATCH --time=10
#SBATCH --partition=short
echo "$SLURM_JOB_NAME $SLURM_ARRAY_TASK_ID on $SLURM_CPUS_PER_TASK cores"
