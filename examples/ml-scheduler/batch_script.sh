echo "one line is one job"
echo "this one runs beside it, on whichever machine has room"
echo "a line is bash," && echo "so two commands make one job"
bash local.sh && echo "files from here go along: see --copy-forward"
