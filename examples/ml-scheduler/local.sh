echo "local.sh came along to $(hostname)"
echo "made on $(hostname)" >made_there.txt
