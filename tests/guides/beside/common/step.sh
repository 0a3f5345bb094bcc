#!/bin/sh
echo step
