"""The Lightning script of the KubeProfiler guide.

Changed: made-up pictures instead of CIFAR10, which would be downloaded; any accelerator instead of "gpu"; no workers
to load data, which a small machine has no cores for; it tells of its epochs instead of a progress bar.
"""

import pytorch_lightning as pl
import torch
import torch.nn.functional as F
import torchvision.models as models
from torch.utils.data import DataLoader, random_split
from torchvision import transforms
from torchvision.datasets import FakeData

from kubernetesdlprofile import kubeprofiler


class TestNN(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = models.mobilenet_v2()
        self.prof = kubeprofiler.KubeProfiler()

    def forward(self, x):
        out = self.model(x)
        return out

    def training_step(self, batch, batch_idx):
        x, y = batch
        x_hat = self.model(x)
        loss = F.nll_loss(x_hat, y)
        self.log("train_loss", loss)
        self.prof.measure()
        return loss

    def on_train_epoch_start(self):
        print(f"epoch {self.current_epoch + 1} of {self.prof.EPOCHS} begins", flush=True)
        self.prof.start_epoch()

    def on_train_epoch_end(self):
        self.prof.end_epoch()

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=1e-3)
        return optimizer


if __name__ == "__main__":
    nn = TestNN()
    size = nn.prof.TRAINING_SET_SIZE
    dataset = FakeData(size + 10, image_size=(3, 32, 32), num_classes=10, transform=transforms.ToTensor())
    train, val = random_split(dataset, [size, len(dataset) - size])
    batch_size = nn.prof.BATCH_SIZE
    epochs = nn.prof.EPOCHS
    trainer = pl.Trainer(
        accelerator="auto",
        devices=max(1, nn.prof.NUM_GPUS),
        num_nodes=nn.prof.NUM_NODES,
        strategy="ddp",
        max_epochs=epochs,
        profiler="simple",
        default_root_dir=nn.prof.root_dir,
        enable_progress_bar=False,
    )
    if not nn.prof.RESTARTED:
        trainer.fit(nn, DataLoader(train, batch_size=batch_size, drop_last=True))
    else:
        trainer.fit(nn, DataLoader(train, batch_size=batch_size, drop_last=True), ckpt_path=nn.prof.ckpt_path)
