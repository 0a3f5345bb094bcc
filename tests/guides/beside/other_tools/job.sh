#!/bin/bash
echo hello from job.sh
for word in "$@"; do echo "$word"; done
