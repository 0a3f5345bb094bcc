import sys

print("fold", sys.argv[2])
