# The first process of a host: makes the namespaces it was started in look like a machine of its own, then reaps.
# Environment: DIR the host's files, NAME its hostname, LOGIN_HOME the login user's home; arguments: directories to hide.
set -eu
exec 3<&0
read -r outside _ </proc/self/stat # the old /proc still knows our pid outside

echo "$NAME" >/proc/sys/kernel/hostname
mount -t proc proc /proc
mount --bind "$DIR/boot-id" /proc/sys/kernel/random/boot_id
[ ! -e /etc/machine-id ] || mount --bind "$DIR/machine-id" /etc/machine-id
mount -t tmpfs -o mode=755 run /run
mkdir /run/sshd /run/lock
mount -t tmpfs -o mode=1777 shm /dev/shm
mount --bind "$DIR/etc" /etc/ssh
for file in passwd group shadow; do
    [ ! -e "$DIR/accounts/$file" ] || mount --bind "$DIR/accounts/$file" "/etc/$file"
done
if [ ! -d "$LOGIN_HOME" ]; then
    mount -t tmpfs -o mode=755 home "$(dirname "$LOGIN_HOME")"
    mkdir "$LOGIN_HOME"
fi
mount --bind "$DIR/home" "$LOGIN_HOME"
for directory; do
    mount -t tmpfs -o size=4k,mode=755 hidden "$directory"
done
mount --bind "$DIR/var-tmp" /var/tmp
mount --bind "$DIR/tmp" /tmp # last: DIR itself lies there
cd /

# Our input ends when the test process does, however it ends; with us the kernel ends every process of the host.
# A shell that waits reaps whatever is handed to it.
cat <&3 >/dev/null &
echo "$outside $!"
exec >/dev/null 3<&-
wait $!
