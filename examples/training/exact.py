"""A run that can be stopped and resumed at every epoch, and ends with the same loss, bit for bit.

The promise rests on saving everything that the next step depends on: the model, the optimizer with its moments, the
schedule, both random states (dropout's and that of the data order), and how far it came.
"""

import argparse
import time

import torch
from torch import nn

from jobyard.sdk import yard_job


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--samples", type=int, default=512)
    parser.add_argument("--step-seconds", type=float, default=0.0, help="make each step at least that long")
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)  # the order of a sum, and so its last bits, depends on how many threads share it

    inputs = torch.randn(options.samples, 20)
    targets = (inputs.sum(dim=1, keepdim=True) > 0).float()
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    order = torch.Generator().manual_seed(1)
    loss_of = nn.BCEWithLogitsLoss()

    job = yard_job()
    path = job.checkpoint_dir / "exact.pt"
    done, total = 0, 0.0
    if path.exists():
        state = torch.load(path)
        for part, name in ((model, "model"), (optimizer, "optimizer"), (schedule, "schedule")):
            part.load_state_dict(state[name])
        torch.set_rng_state(state["random"])
        order.set_state(state["order"])
        done, total = state["epochs"], state["loss"]
    print(f"begins with epoch {done + 1}, resumed: {job.resumed}", flush=True)

    for epoch in job.epochs(options.epochs, start=done):
        total = 0.0
        for batch in torch.randperm(options.samples, generator=order).split(32):
            begin = time.monotonic()
            optimizer.zero_grad()
            loss = loss_of(model(inputs[batch]), targets[batch])
            loss.backward()
            optimizer.step()
            total += loss.item()
            time.sleep(max(0.0, options.step_seconds - (time.monotonic() - begin)))
            job.step()
        schedule.step()
        save(
            path,
            model=model.state_dict(),
            optimizer=optimizer.state_dict(),
            schedule=schedule.state_dict(),
            random=torch.get_rng_state(),
            order=order.get_state(),
            epochs=epoch + 1,
            loss=total,
        )
        job.saved()
        print(f"epoch {epoch + 1} loss {total.hex()}", flush=True)
    print(f"final loss {total.hex()}")


def save(path, **state):
    """The old one stays whole until the new one is."""
    new = path.with_suffix(".new")
    torch.save(state, new)
    new.replace(path)


if __name__ == "__main__":
    main()
