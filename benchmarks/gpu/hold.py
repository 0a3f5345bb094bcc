"""Hold so much memory of the GPU for a while: hold.py MIB SECONDS. On a fake GPU the yard's own pretender does it."""

from __future__ import annotations

import os
import sys
import time

mib, seconds = int(sys.argv[1]), float(sys.argv[2])
print(f"reserved {os.environ.get('RESERVED_MEM', '?')} MiB, takes {mib} MiB", flush=True)
if os.environ.get("JOBYARD_FAKE_GPUS"):
    words = [sys.executable, "-m", "jobyard.agent.devices.fake_gpu", "hold", f"{mib}MiB", "--", "sleep", str(seconds)]
    os.execv(sys.executable, words)

import torch  # noqa: E402

held = [torch.ones(1 << 28, dtype=torch.uint8, device="cuda") for _ in range(mib // 256)]  # 256 MiB each
torch.cuda.synchronize()
print(f"holds {len(held) * 256} MiB", flush=True)
time.sleep(seconds)
