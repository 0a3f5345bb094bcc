"""A training of the right shape and no substance: it saves after each epoch, resumes, and tells the manager.

It runs in any image with Python. `CHECKPOINTS` is a directory that outlives the pod; `NOTIFY_URL` is the manager's
/update_last_checkpoint, with its token as a password (http://job:TOKEN@host:6000/...). Both may be missing.
"""

import base64
import json
import os
import socket
import time
import urllib.parse
import urllib.request

EPOCHS = int(os.environ.get("EPOCHS", "20"))
SECONDS = float(os.environ.get("EPOCH_SECONDS", "8"))  # of an epoch on one GPU


def main():
    gpus = int(os.environ.get("NGPU", "1"))
    path = os.path.join(os.environ.get("CHECKPOINTS", "/tmp"), "epoch")
    done = 0
    if os.path.exists(path):
        with open(path) as file:
            done = int(file.read())
    print(f"{gpus} GPUs, from epoch {done}", flush=True)
    for epoch in range(done + 1, EPOCHS + 1):
        time.sleep(SECONDS / gpus)
        with open(path + ".new", "w") as file:
            file.write(str(epoch))
        os.replace(path + ".new", path)
        print(f"epoch {epoch} of {EPOCHS} with {gpus} GPUs", flush=True)
        notify(epoch)


def notify(epoch):
    """As the modified trainer controller of fms-hf-tuning does. A manager that is away harms nothing."""
    url = os.environ.get("NOTIFY_URL")
    if not url:
        return
    parts = urllib.parse.urlsplit(url)
    headers = {"Content-Type": "application/json"}
    if parts.password:
        headers["Authorization"] = "Basic " + base64.b64encode(f"job:{parts.password}".encode()).decode()
    body = {
        "job_name": socket.gethostname().split("-master")[0],
        "last_checkpoint_time": time.time(),
        "completed_epochs": epoch,
        "total_epochs": EPOCHS,
    }
    plain = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    request = urllib.request.Request(plain, json.dumps(body).encode(), headers, method="PUT")
    try:
        urllib.request.urlopen(request, timeout=5).close()
    except OSError as error:
        print(f"the manager was not told: {error}", flush=True)


if __name__ == "__main__":
    main()
