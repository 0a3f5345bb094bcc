"""Data-parallel training whose number of processes changes: one process per task of a gang, gloo between them.

At each start it checks what the yard told it (how many processes, which GPUs, epochs done) against what it finds, and
adds a line to `starts.jsonl` in its checkpoint directory. `samples.json` there has what was trained on, epoch by epoch.
"""

import argparse
import json
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from jobyard.sdk import yard_job

SAMPLES, GLOBAL_BATCH = 240, 24


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--step-seconds", type=float, default=0.0, help="make each step at least that long")
    options = parser.parse_args()
    alone = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}  # with no yard around it
    for name, value in alone.items():
        os.environ.setdefault(name, value)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()

    job = yard_job()
    torch.manual_seed(0)
    inputs = torch.randn(SAMPLES, 8)
    targets = inputs.sum(dim=1, keepdim=True)
    model = DistributedDataParallel(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    path = os.path.join(job.checkpoint_dir, "elastic.pt")
    seen = {}  # epoch -> the samples that it trained on, of all ranks
    if os.path.exists(path):
        state = torch.load(path)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        seen = state["seen"]
    check_start(job, len(seen))

    for epoch in job.epochs(options.epochs, start=len(seen)):
        # The order depends on the epoch alone, and each batch is dealt out: at any size the same steps are taken.
        order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(epoch))
        mine = []
        for batch in order.split(GLOBAL_BATCH):
            begin = time.monotonic()
            part = batch[rank::world]
            optimizer.zero_grad()
            errors = nn.functional.mse_loss(model(inputs[part]), targets[part], reduction="sum")
            (errors * world / len(batch)).backward()  # DDP takes the mean over ranks, whose parts may differ by one
            optimizer.step()
            mine += part.tolist()
            time.sleep(max(0.0, options.step_seconds - (time.monotonic() - begin)))
            job.step()
        parts = [None] * world
        dist.all_gather_object(parts, mine)
        seen[epoch] = sorted(sample for part in parts for sample in part)
        if rank == 0:
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "seen": seen}, path + ".new")
            os.replace(path + ".new", path)
            print(f"epoch {epoch + 1} with {world} processes: loss {errors.item() / len(part):.6f}", flush=True)
        dist.barrier()  # nobody goes on, or away, before it is saved
        job.saved()

    if rank == 0:
        with open(os.path.join(job.checkpoint_dir, "samples.json"), "w") as file:
            json.dump(seen, file)
    dist.destroy_process_group()


def check_start(job, saved):
    """What the yard told each process fits what the processes find together."""
    rank, world = dist.get_rank(), dist.get_world_size()
    devices = [each for each in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if each]
    told = {
        "world": int(os.environ["WORLD_SIZE"]),
        "epochs_done": int(os.environ.get("EPOCHS_DONE", saved)),
        "restarted": os.environ.get("JOB_RESTARTED", "TRUE" if saved else "FALSE") == "TRUE",
        "devices": [f"{os.environ.get('YARD_NODE', '')}/{each}" for each in devices],
    }
    everybody = [None] * world
    dist.all_gather_object(everybody, told)
    assert [each["world"] for each in everybody] == [world] * world, f"{world} processes met: {everybody}"
    assert all(each["epochs_done"] == saved for each in everybody), f"{saved} epochs are saved: {everybody}"
    assert all(each["restarted"] == (saved > 0) for each in everybody), f"{saved} epochs are saved: {everybody}"
    claimed = [device for each in everybody for device in each["devices"]]
    assert len(set(claimed)) == len(claimed), f"two processes have one GPU: {everybody}"
    if rank == 0:
        start = {"world": world, "epochs_done": saved, "devices": claimed, "resumed": job.resumed}
        with open(os.path.join(job.checkpoint_dir, "starts.jsonl"), "a") as file:
            print(json.dumps(start), file=file)


if __name__ == "__main__":
    main()
